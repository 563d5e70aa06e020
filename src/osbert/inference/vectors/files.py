"""Writes a file of vectors atomically: .npy, .npz or Parquet, with texts, line numbers and settings.

A column of texts is stored as its UTF-8 bytes and the end offset of each text. An .npz holds all columns as arrays. An
.npy holds only the vectors, and an .npz beside it the rest (`beside`) and the CRC-32 of the .npy: zip archives and the
pages of Parquet have one themselves. Parquet has one row for each text.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from osbert.files import replace_file, replacing
from osbert.reading.parquet import parquet_library

SUFFIXES = (".npy", ".npz", ".parquet")
ENDS = "_ends"
"""Suffix of the array with the end offsets of a column of texts."""
BLOCK = 2**13
"""Rows per block."""
SETTINGS = "settings"
"""Name of the array with the settings, as JSON."""
CHECKSUM = "crc32"
"""Name of the setting with the checksum of an .npy, in the file beside it."""
BITS, ROW_CHECKSUMS = "bits", "row_crc32"
"""Names of the columns of a binary file: the bits, and the CRC-32 of each int8 vector, which is read alone."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A raw binary file of numbers in C order; `shape` is the shape of the whole array."""

    path: Path
    dtype: str
    shape: tuple[int, ...]

    def blocks(self, rows: int = BLOCK) -> Iterator[NDArray[Any]]:
        """Yield the array in blocks of at most `rows` rows."""
        size = int(np.prod(self.shape[1:], dtype=np.int64))
        with self.path.open("rb") as file:
            for first in range(0, self.shape[0], rows):
                count = min(rows, self.shape[0] - first)
                values = np.frombuffer(file.read(count * size * np.dtype(self.dtype).itemsize), self.dtype)
                yield values.reshape(count, *self.shape[1:])

    def write(self, file: IO[bytes]) -> None:
        """Write the array into an open file in .npy format, without loading it."""
        header = io.BytesIO()
        described = {"descr": np.dtype(self.dtype).str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(header, described)
        file.write(header.getvalue())
        with self.path.open("rb") as source:
            shutil.copyfileobj(source, file, 2**20)


def beside(out: Path) -> Path:
    """Return the path of the file that describes the rows of an .npy file."""
    return out.with_suffix(".rows.npz")


@dataclass(frozen=True, kw_only=True)
class VectorOutput:
    """The output of vectors. `form`: the suffix in the user's path, which may be a link to a file of another name.

    `rows`: the file beside an .npy, None with other forms.
    """

    form: str
    path: Path
    rows: Path | None = None


def write_vectors(out: VectorOutput, columns: Mapping[str, Column], settings: Mapping[str, Any]) -> None:
    """Write the columns, which include "vectors", and the settings. Raises OSError."""
    if out.form == ".parquet":
        replace_file(out.path, lambda aside: _write_parquet(aside, columns, settings))
    elif out.rows is None:
        replace_file(out.path, lambda aside: _write_npz(aside, columns, settings))
    else:
        others = {name: column for name, column in columns.items() if name != "vectors"}
        with replacing(out.path) as aside:
            with aside.open("wb") as file:
                columns["vectors"].write(file)
            described = {**settings, CHECKSUM: file_crc32(aside)}
            replace_file(out.rows, lambda rows: _write_npz(rows, others, described))


def file_crc32(path: Path) -> int:
    """Return the CRC-32 of a file's content. Raises OSError as `open`."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def map_array(path: Path, name: str) -> NDArray[Any]:
    """Return an array of an .npz as a memory map, of which only what is used is read.

    Raises ValueError if the archive is compressed.
    """
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError("it is compressed")
    with path.open("rb") as file:
        file.seek(entry.header_offset + 26)  # a local file header has 30 bytes, a name and further fields
        file.seek(entry.header_offset + 30 + sum(struct.unpack("<HH", file.read(4))))
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        return np.memmap(path, dtype, "r", file.tell(), shape)


def _write_npz(path: Path, columns: Mapping[str, Column], settings: Mapping[str, Any]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                column.write(file)
        # A JSON text as an array of one string, which np.load reads without pickle.
        with archive.open(f"{SETTINGS}.npy", "w") as file:
            np.lib.format.write_array(file, np.array(json.dumps(settings, ensure_ascii=False)))


def _write_parquet(path: Path, columns: Mapping[str, Column], settings: Mapping[str, Any]) -> None:
    pyarrow = parquet_library(path)
    texts = [name.removesuffix(ENDS) for name in columns if name.endswith(ENDS)]
    vectors = columns["vectors"]
    names = ["vector"] if len(vectors.shape) == 2 else [f"vector_{index}" for index in range(vectors.shape[1])]
    of_vector = pyarrow.list_(pyarrow.from_numpy_dtype(np.dtype(vectors.dtype)), vectors.shape[-1])
    fields = [("line", pyarrow.int64()), *((name, pyarrow.string()) for name in texts)]
    metadata = {b"osbert": json.dumps(settings, ensure_ascii=False).encode()}
    schema = pyarrow.schema([*fields, *((name, of_vector) for name in names)], metadata=metadata)
    sources = [columns["lines"].blocks(), *(texts_of(columns, name) for name in texts), vectors.blocks()]
    with pyarrow.parquet.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for lines, *spelt, block in zip(*sources, strict=True):
            stacked = block.reshape(len(block), len(names), -1)
            arrays = [
                pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(stacked[:, index].reshape(-1)), stacked.shape[-1])
                for index in range(len(names))
            ]
            table = pyarrow.table([pyarrow.array(lines), *map(pyarrow.array, spelt), *arrays], schema=schema)
            writer.write_table(table)


def texts_of(columns: Mapping[str, Column], name: str) -> Iterator[list[str]]:
    """Yield the texts of a column, block by block, in step with `Column.blocks`."""
    start = 0
    with columns[name].path.open("rb") as file:
        for ends in columns[name + ENDS].blocks():
            texts = []
            for end in ends.tolist():
                texts.append(file.read(end - start).decode("utf-8"))
                start = end
            yield texts
