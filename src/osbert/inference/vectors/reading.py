"""Reads a file of vectors: its settings, its vectors in blocks, and the texts of chosen rows.

The checksums of what is read are compared, so that a flipped bit is an error and not another answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.guarded import parse_json
from osbert.inference.vectors.files import BLOCK, CHECKSUM, ENDS, SETTINGS, SUFFIXES, beside, map_array
from osbert.models.forms import VectorKind, vector_kind
from osbert.reading.parquet import parquet_library

ArrayReader = Callable[[str], AbstractContextManager[tuple[IO[bytes], tuple[int, ...], Any]]]
"""Opens an array by its name; gives the file, positioned at the first number, the shape and the type."""
BlockReader = Callable[[ArrayReader], Iterator[Any]]
TOLD = ("columns", "model", "vectors", "weights", "tokenizer")
"""Names of the settings that every file has."""


@dataclass(frozen=True, kw_only=True)
class VectorRow:
    """A row: the line number of its text in the embedded file, and the text, or both texts of a pair."""

    line: int
    texts: tuple[str, ...]


class VectorFile(ABC):
    """A file that `write_vectors` wrote. `settings`: how the vectors were computed.

    Methods that read raise UserError if the file is damaged, or was replaced since it was opened.
    """

    path: Path
    stamps: Sequence[Any]
    """What `read_stamps` returned when the file was opened."""
    settings: Mapping[str, Any]
    names: tuple[str, ...]
    """The stored names of the columns of texts."""

    @property
    def text_names(self) -> tuple[str, ...]:
        """Column names of the texts in tables of results: text, and for pairs also pair."""
        return ("text", "pair")[: len(self.settings["columns"])]

    @property
    def kind(self) -> VectorKind:
        """The kind of the vectors."""
        return vector_kind(self.settings["vectors"].get("pooling"))

    def blocks(self, read: BlockReader | None = None) -> Iterator[Any]:
        """Yield the vectors in blocks, in their order: dense ones (n, ...), those of int8 without their lengths.

        `read` yields the blocks of another kind (kinds.py), from the arrays of the file.
        """
        if read is None and self.kind in ("sparse", "multi"):
            self.require_single(np.empty((0, 0), np.float32))
        with self._reading():
            if read is not None:
                yield from read(self._array)
            else:
                for block in self._blocks():
                    yield block.astype(np.float32, copy=False)

    @property
    def fingerprint(self) -> str:
        """A hash of the settings and of the vectors' checksum, by which an index knows its vectors."""
        facts = {"settings": dict(self.settings), "crc32": self._checksum()}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def is_binary(self) -> bool:
        """Whether the file has bits, by which a search chooses candidates."""
        return self.settings.get("dtype") == "binary"

    def column(self, name: str) -> NDArray[Any]:
        """Return a column other than that of the vectors. Raises UserError if there is none."""
        with self._reading():
            return self._column(name)

    def mapped_vectors(self) -> NDArray[Any]:
        """Return the vectors (n, ...) as a memory map, whose checksum is not compared.

        Raises UserError for Parquet, which has no array of vectors.
        """
        with self._reading():
            return self._mapped_vectors()

    def rows(self, indices: Sequence[int]) -> list[VectorRow]:
        """Return the rows at these indices, in the order given."""
        with self._reading():
            return self._rows(indices)

    def all_rows(self) -> Iterator[VectorRow]:
        """Yield all rows in their order."""
        with self._reading():
            yield from self._all_rows()

    def require_single(self, block: NDArray[np.float32]) -> None:
        """Raise UserError unless the file has one dense vector for each text."""
        if self.kind == "dense" and block.ndim <= 2:
            return
        layers = f"the layers {self.settings['vectors'].get('layers')} side by side"
        what = {"sparse": "sparse vectors", "tokens": "a vector for each token", "multi": "many vectors a text"}.get(
            self.kind, layers
        )
        raise UserError(
            f"{self.path} holds {what}: make one with a single vector a text, such as with --pooling mean.",
            code="wrong-format",
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        problem: UserError | None = None
        try:
            with _damage_as_error(self.path):
                yield
        except UserError as error:
            problem = error
        if read_stamps(self.path) != self.stamps:  # what was read is of two files, which do not fit
            raise UserError(f"{self.path} changed while it was read. Run the command again.", code="file-changed")
        if problem:
            raise problem

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of rows."""

    @abstractmethod
    def _blocks(self) -> Iterator[NDArray[Any]]: ...

    def _checksum(self) -> int | None:
        """Return the CRC-32 of the vectors, None if only their pages have one."""
        return None

    def _array(self, name: str) -> AbstractContextManager[tuple[IO[bytes], tuple[int, ...], np.dtype[Any]]]:
        raise ValueError("this form has dense vectors alone")

    def _column(self, name: str) -> NDArray[Any]:
        raise ValueError(f"this form has no {name}")

    def _mapped_vectors(self) -> NDArray[Any]:
        raise ValueError("this form has no array of vectors")

    @abstractmethod
    def _rows(self, indices: Sequence[int]) -> list[VectorRow]: ...

    @abstractmethod
    def _all_rows(self) -> Iterator[VectorRow]: ...


def holds_vectors(path: Path) -> bool:
    """Return whether a file holds vectors: by its suffix, and for Parquet by its metadata."""
    if path.suffix != ".parquet" or not path.is_file():
        return path.suffix in SUFFIXES
    with _damage_as_error(path):
        return b"osbert" in (parquet_library(path).parquet.read_schema(path).metadata or {})


def open_vectors(path: Path) -> VectorFile:
    """Open a file of vectors. Raises UserError if it is missing, damaged, or lacks its settings."""
    if not path.is_file():
        raise UserError(f"{path}: no such file.", code="missing-file")
    if path.suffix not in SUFFIXES:
        raise UserError(
            f"{path}: vectors are read from {', '.join(SUFFIXES)}, as osbert embed writes them.",
            code="wrong-format",
        )
    with _damage_as_error(path):
        stamps = read_stamps(path)  # before the content: a change meanwhile is noticed later
        opened = _Parquet(path) if path.suffix == ".parquet" else _Arrays(path)
        if missing := [name for name in TOLD if name not in opened.settings]:
            raise ValueError(f"it lacks its {', '.join(missing)}")
        if len(opened.names) != len(opened.settings["columns"]):
            raise ValueError("it lacks a column of texts")
        opened.stamps = stamps
        return opened


def read_stamps(path: Path) -> list[tuple[int, ...]]:
    """Return facts that change when a file of vectors is replaced, or the one with the texts of an .npy."""
    stats = [file.stat() for file in (path, beside(path)) if file.is_file()]
    return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]


@contextlib.contextmanager
def _damage_as_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:  # of the many classes of zip, numpy, pyarrow and what lies in them
        raise UserError(
            f"{path}: no vectors that osbert embed wrote, or damaged ({error}).", code="damaged-file"
        ) from error


class _Arrays(VectorFile):
    """An .npz, or an .npy with its .npz."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = path if path.suffix == ".npz" else beside(path)
        if not self.known.is_file():
            raise UserError(f"{self.known} is missing: it holds the texts of {path}.", code="missing-file")
        with self.known.open("rb") as file, np.load(file) as arrays:  # numpy leaves a damaged one open
            self.settings = parse_json(arrays[SETTINGS].item())
            texts = [name.removesuffix(ENDS) for name in arrays.files if name.endswith(ENDS)]
            self.names = (*texts[: len(self.settings.get("columns", ()))],)  # the others are columns that were kept
            self.lines = arrays["lines"]
            self.ends = {name: arrays[name + ENDS] for name in self.names}
        if path.suffix == ".npy" and (count := len(np.load(path, mmap_mode="r"))) != len(self.lines):
            raise UserError(
                f"{path} has {count:,} vectors, and {self.known} tells of {len(self.lines):,} texts: they are of "
                "different runs. Give the command that wrote them again.",
                code="damaged-file",
            )

    def _blocks(self) -> Iterator[NDArray[Any]]:
        if self.path.suffix == ".npy":
            yield from self._mapped_blocks()
            return
        with self._array("vectors") as (file, shape, dtype):
            size = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
            for first in range(0, shape[0], BLOCK):
                count = min(BLOCK, shape[0] - first)
                yield np.frombuffer(file.read(count * size), dtype).reshape(count, *shape[1:])

    def _checksum(self) -> int | None:
        if self.path.suffix == ".npy":
            return self.settings.get(CHECKSUM)
        with zipfile.ZipFile(self.path) as archive:
            return archive.getinfo("vectors.npy").CRC

    def _column(self, name: str) -> NDArray[Any]:
        with self._array(name) as (file, shape, dtype):
            return np.frombuffer(file.read(), dtype).reshape(shape)  # to its end, where the archive's checksum is

    def _mapped_vectors(self) -> NDArray[Any]:
        return np.load(self.path, mmap_mode="r") if self.path.suffix == ".npy" else map_array(self.path, "vectors")

    def _mapped_blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the blocks of an .npy. Raises ValueError after the last one if its content has changed."""
        whole = np.load(self.path, mmap_mode="r")
        with self.path.open("rb") as file:
            checksum = zlib.crc32(file.read(whole.offset))
        for first in range(0, len(whole), BLOCK):
            block = np.array(whole[first : first + BLOCK], order="C")
            checksum = zlib.crc32(block.data, checksum)
            yield block
        if self.settings.get(CHECKSUM, checksum) != checksum:  # earlier versions wrote none
            raise ValueError("its content has changed")

    @cached_property
    def _checked_texts(self) -> tuple[str, ...]:
        """The names of the columns of texts, read to the end once: an archive compares checksums there alone."""
        for name in self.names:
            with self._array(name) as (file, *_):
                while file.read(2**20):
                    pass
        return self.names

    def _rows(self, indices: Sequence[int]) -> list[VectorRow]:
        texts: dict[int, list[str]] = {index: [] for index in indices}
        for name in self._checked_texts:
            with self._array(name) as (file, *_):
                begin, ends = file.tell(), self.ends[name]
                for index in sorted(texts):  # forwards: to go back in an archive is to begin anew
                    # `ends` has the end offset of each text, so a text starts where the one before it ends.
                    start = int(ends[index - 1]) if index else 0
                    file.seek(begin + start)
                    texts[index].append(file.read(int(ends[index]) - start).decode("utf-8"))
        return [VectorRow(line=int(self.lines[index]), texts=tuple(texts[index])) for index in indices]

    @property
    def count(self) -> int:
        return len(self.lines)

    def _all_rows(self) -> Iterator[VectorRow]:
        with contextlib.ExitStack() as held:
            files = [(held.enter_context(self._array(name))[0], self.ends[name]) for name in self.names]
            for index, line in enumerate(self.lines.tolist()):
                sizes = [int(ends[index]) - (int(ends[index - 1]) if index else 0) for _, ends in files]
                texts = tuple(file.read(size).decode("utf-8") for (file, _), size in zip(files, sizes, strict=True))
                yield VectorRow(line=line, texts=texts)

    @contextlib.contextmanager
    def _array(self, name: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[Any]]]:
        with zipfile.ZipFile(self.known) as archive, archive.open(f"{name}.npy") as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            yield file, shape, dtype


class _Parquet(VectorFile):
    """A Parquet file with one row for each text."""

    def __init__(self, path: Path) -> None:
        self.library = parquet_library(path)
        self.path = path
        with self._open_table() as table:
            schema = table.schema_arrow
            self.settings = parse_json(schema.metadata[b"osbert"].decode())
            is_list = self.library.types.is_fixed_size_list
            self.vectors = [field.name for field in schema if is_list(field.type)]
            texts = [name for name in schema.names if name != "line" and name not in self.vectors]
            self.names = (*texts[: len(self.settings.get("columns", ()))],)
            counts = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
        self.ends = np.cumsum(counts)

    @property
    def count(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def _open_table(self) -> Any:
        return self.library.parquet.ParquetFile(self.path, page_checksum_verification=True)

    def _blocks(self) -> Iterator[NDArray[Any]]:
        with self._open_table() as table:
            for batch in table.iter_batches(batch_size=BLOCK, columns=self.vectors):
                layers = [column.flatten().to_numpy().reshape(len(batch), -1) for column in batch.columns]
                yield layers[0] if len(layers) == 1 else np.stack(layers, axis=1)

    def _rows(self, indices: Sequence[int]) -> list[VectorRow]:
        rows = {}
        with self._open_table() as table:
            # Only the row groups with a chosen row are read; `ends` has the cumulative row counts of the groups.
            for group in sorted({int(np.searchsorted(self.ends, index, side="right")) for index in indices}):
                first = int(self.ends[group - 1]) if group else 0
                columns = table.read_row_group(group, columns=["line", *self.names]).to_pydict()
                for index in (index for index in indices if first <= index < self.ends[group]):
                    texts = tuple(columns[name][index - first] for name in self.names)
                    rows[index] = VectorRow(line=columns["line"][index - first], texts=texts)
        return [rows[index] for index in indices]

    def _all_rows(self) -> Iterator[VectorRow]:
        with self._open_table() as table:
            for batch in table.iter_batches(batch_size=BLOCK, columns=["line", *self.names]):
                columns = batch.to_pydict()
                for line, *texts in zip(columns["line"], *(columns[name] for name in self.names), strict=True):
                    yield VectorRow(line=line, texts=tuple(texts))
