"""osbert neighbours: which texts of a file of vectors are nearest to a text, for a look."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.terminal import one_line

if TYPE_CHECKING:
    from osbert.inference.embedder import Embedder


def neighbours(
    vectors: Path,
    /,
    *texts: str,
    count: int = 10,
    model: ModelFolder | None = None,
    device: str = "auto",
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Show the texts whose vectors are nearest to that of a text, with their cosines and the lines they stand on.

    The text is embedded as those of the file were, by the same model. Every vector is compared, in blocks, so the
    answer is exact and a file of any size fits into memory.

    Parameters
    ----------
    vectors
        A file that `osbert embed` wrote: .npy, .npz or .parquet, with one vector a text.
    texts
        The text, in quotes; two where the file is one of pairs.
    count
        How many to show.
    model
        Where the model is now, if it is not where it was; a folder, or a name (docs/models-by-name.md).
    device
        cpu, cuda or cuda:N; auto is a GPU where there is one.
    """
    from osbert.inference.neighbours import nearest_rows
    from osbert.inference.vectors.reading import open_vectors

    opened = open_vectors(vectors)
    columns = opened.settings["columns"]
    if len(texts) != len(columns):
        kind = "pairs: give two texts" if len(columns) == 2 else "single texts: give one text"
        raise UserError(f"{vectors} holds vectors of {kind} after the file, not {len(texts)}.")
    if count < 1:
        raise UserError(f"--count must be at least 1, not {count}.")
    embedder = _embedder(opened.settings, vectors, model or Path(opened.settings["model"]), device, opening)
    sequences = embedder.sequences(texts, 0)
    if cut := sum(example.truncated for example in sequences):
        print(f"{cut:,} pieces of the text were not read: it is longer than {embedder.packer.length} tokens.")
    wanted = embedder.vectors([sequences])[0]
    found = nearest_rows(opened.blocks(), wanted, count)
    for (_, score), row in zip(found, opened.rows([place for place, _ in found]), strict=True):
        print(f"{score:7.4f}  line {row.line:,}  {one_line(' | '.join(row.texts))}")


def _embedder(settings: Mapping[str, Any], vectors: Path, folder: Path, device: str, opening: Opening) -> Embedder:
    """Return what made the file; UserError when its model is not there, is another, or its vectors are not single."""
    from osbert.inference.embedder import Embedder
    from osbert.inference.engine import load
    from osbert.inference.vectors.settings import VectorSettings
    from osbert.interop.folder import open_folder

    try:
        made = VectorSettings(**settings["vectors"])
    except TypeError as error:
        raise UserError(f"{vectors} was made with settings that this osbert does not know ({error}).") from error
    if not folder.is_dir():
        raise UserError(
            f"{vectors} was made with the model in {folder}, which is not there. Say where: --model FOLDER."
        )
    source = open_folder(folder, opening)
    weights = source.fingerprint  # before `load`, which frees the memory of the weights
    embedder = Embedder(load(source, device=device), made)
    if made.pooling == "tokens" or len(embedder.shape) > 1:
        what = "a vector for each token" if made.pooling == "tokens" else f"the layers {made.layers} side by side"
        raise UserError(f"{vectors} holds {what}: make one with a single vector a text.")
    tokenizer = embedder.engine.tokenizer.fingerprint
    if (weights, tokenizer) != (settings["weights"], settings["tokenizer"]):
        raise UserError(f"{vectors} was made with another model than the one that is now in {folder}.")
    return embedder
