"""Texts with their vectors, for what compares all of them: a file of vectors, or texts that are embedded first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.vectors.nearest import finite_lengths
from osbert.inference.vectors.reading import VectorFile, holds_vectors, open_vectors
from osbert.interop.opening import CAREFUL, Opening
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.file_options import EmbeddedOptions, TextFile
from osbert.runs.rows.embed import embed_file
from osbert.runs.rows.standard_input import NAME, STREAM
from osbert.runs.rows.vector_output import VectorOptions


@dataclass(frozen=True, kw_only=True)
class VectorInput:
    """Texts to compare: a file that `osbert embed` wrote, or a file of texts, or texts in memory, and a `model`."""

    data: Path | Sequence[str]
    model: Path | None = None
    options: EmbeddedOptions = EmbeddedOptions()  # noqa: RUF009 - it is frozen
    opening: Opening = CAREFUL

    @property
    def name(self) -> str:
        """Return what messages call the texts."""
        if self.data == STREAM:
            return NAME
        return str(self.data) if isinstance(self.data, Path) else "the data"

    @property
    def files(self) -> list[Path]:
        """Return the files that are read."""
        return [self.data] if isinstance(self.data, Path) else []

    @contextmanager
    def open(self, watch: Watch = ignore) -> Iterator[tuple[VectorFile, NDArray[np.float32]]]:
        """Give the texts, and their vectors at length 1 as a map of a file in a temporary folder.

        Raises UserError when there are no texts or but one, no model for them, or vectors that are not finite.
        """
        with TemporaryDirectory(prefix="osbert-") as path:
            folder = Path(path)
            opened = open_vectors(self._vectors(folder, watch))
            vectors = unit_vectors(opened, folder)
            if len(vectors) < 2:
                raise UserError(
                    f"{self.name} has one text alone: there is nothing to compare it with.", code="too-little-data"
                )
            yield opened, vectors

    def _vectors(self, folder: Path, watch: Watch) -> Path:
        """Return a file of vectors: the user's, or a new one in a folder."""
        if isinstance(self.data, Path) and holds_vectors(self.data):
            self._refuse_idle(self.data)
            return self.data
        if self.model is None:
            raise UserError(
                f"{self.name} holds texts: say which model embeds them, --model MODEL; or give a file of vectors that "
                "osbert embed wrote.",
                code="missing-option",
            )
        texts = self.data if isinstance(self.data, Path) else _write_texts(self.data, folder / "texts.jsonl")
        options = VectorOptions(device=self.options.device)
        file, out = TextFile(texts, self.options), folder / "vectors.npy"
        written = embed_file(self.model, file, out=out, vectors=options, opening=self.opening, watch=watch)
        # Without the name of the temporary file, which is gone when the user reads this.
        for line in written.describe():
            watch(Notice(line.partition(" -> ")[0]))
        return out

    def _refuse_idle(self, vectors: Path) -> None:
        """Raise UserError at options for texts that are embedded, where the vectors are there already."""
        plain = asdict(EmbeddedOptions())
        idle = [name for name, value in asdict(self.options).items() if value != plain[name]]
        # Refuse rather than ignore: a user who names a model expects it to be used.
        if idle or self.model is not None:
            names = ", ".join(f"--{name}" for name in [*(["model"] if self.model is not None else []), *idle])
            raise UserError(
                f"{vectors} holds vectors, for which {names} would do nothing: leave that out.",
                code="options-exclude-each-other",
            )


def unit_vectors(opened: VectorFile, folder: Path) -> NDArray[np.float32]:
    """Return the vectors of a file, scaled to length 1, as a memory map (n, D) in `folder`. Zero vectors stay zero.

    Raises UserError if a text has several vectors, or one is not finite; OSError on a full disk.
    """
    path, shape = folder / "unit.bin", (0, 0)
    with path.open("wb") as file:  # by appending: where the disk is full, writing to a map ends the process
        for block in opened.blocks():
            opened.require_single(block)
            lengths = finite_lengths(block, shape[0])
            (block / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32).tofile(file)
            shape = (shape[0] + len(block), block.shape[1])
    return np.memmap(path, np.float32, "r", shape=shape)


def _write_texts(texts: Sequence[str], path: Path) -> Path:
    """Write texts as JSON lines. Raises UserError where there are none, or one is no string."""
    if isinstance(texts, Mapping) or not hasattr(texts, "__len__") or hasattr(texts, "columns"):
        raise UserError(
            f"The data is a {type(texts).__name__}: give a list of texts, such as its column of texts.",
            code="wrong-column-type",
        )
    if not len(texts):
        raise UserError("The data is empty: give texts.", code="no-data")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UserError(f"The data, row {number}: {type(text).__name__} is no text.", code="wrong-column-type")
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path
