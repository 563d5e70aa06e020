"""The texts of a file of vectors that are nearest to a text, which is embedded as those of the file were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.inference.embedder import Embedder
from osbert.inference.engine import load
from osbert.inference.neighbours import nearest_rows
from osbert.inference.vectors.reading import open_vectors
from osbert.inference.vectors.settings import VectorSettings
from osbert.interop.folder import Folder, open_folder
from osbert.interop.opening import CAREFUL, Opening


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A text of the file, or a pair: its cosine, its line, and what it says."""

    cosine: float
    line: int
    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """The nearest texts, the nearest first; how many pieces of the text were not read, and how many at most are."""

    nearest: Sequence[Neighbour]
    unread: int
    length: int


def find_neighbours(
    vectors: Path,
    texts: Sequence[str],
    *,
    count: int = 10,
    model: Path | None = None,
    device: str = "auto",
    opening: Opening = CAREFUL,
) -> Neighbourhood:
    """Return the `count` texts of a file of vectors that have the largest cosines with a text, or with a pair.

    `model`: where the model is that made the file, if it has moved. Raises UserError when the file is of pairs and
    there is one text, or the other way round, and when the model is not there or is another one.
    """
    opened = open_vectors(vectors)
    columns = opened.settings["columns"]
    if len(texts) != len(columns):
        kind = "pairs: give two texts" if len(columns) == 2 else "single texts: give one text"
        raise UserError(
            f"{vectors} holds vectors of {kind} after the file, not {len(texts)}.", code="wrong-number-of-texts"
        )
    if count < 1:
        raise UserError(f"--count must be at least 1, not {count}.", code="invalid-value")
    made = _settings(opened.settings, vectors)
    source = _source(model or Path(opened.settings["model"]), vectors, opening)
    weights = source.fingerprint  # before `load`, which frees the memory of the weights
    embedder = Embedder(load(source, device=device), made)
    _check(embedder, weights, opened.settings, vectors)
    sequences = embedder.sequences(texts, 0)
    found = nearest_rows(opened.blocks(), embedder.vectors([sequences])[0], count)
    rows = opened.rows([place for place, _ in found])
    nearest = [
        Neighbour(cosine=cosine, line=row.line, texts=row.texts) for (_, cosine), row in zip(found, rows, strict=True)
    ]
    unread = sum(example.truncated for example in sequences)
    return Neighbourhood(nearest=nearest, unread=unread, length=embedder.packer.length)


def _settings(settings: Mapping[str, Any], vectors: Path) -> VectorSettings:
    try:
        return VectorSettings(**settings["vectors"])
    except TypeError as error:
        raise UserError(
            f"{vectors} was made with settings that this osbert does not know ({error}).", code="wrong-format"
        ) from error


def _source(folder: Path, vectors: Path, opening: Opening) -> Folder:
    if not folder.is_dir():
        raise UserError(
            f"{vectors} was made with the model in {folder}, which is not there. Say where: --model FOLDER.",
            code="missing-file",
        )
    return open_folder(folder, opening)


def _check(embedder: Embedder, weights: str, settings: Mapping[str, Any], vectors: Path) -> None:
    """Raise UserError when a text has not one vector, or the model is not the one that made the file."""
    made, folder = embedder.settings, embedder.engine.folder
    if made.pooling == "tokens" or len(embedder.shape) > 1:
        what = "a vector for each token" if made.pooling == "tokens" else f"the layers {made.layers} side by side"
        raise UserError(f"{vectors} holds {what}: make one with a single vector a text.", code="wrong-format")
    tokenizer = embedder.packer.tokenizer.fingerprint
    if (weights, tokenizer) != (settings["weights"], settings["tokenizer"]):
        raise UserError(
            f"{vectors} was made with another model than the one that is now in {folder}.", code="mismatched-base"
        )
