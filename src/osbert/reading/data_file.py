"""A user's file of data: opened once if it is small, and its changes noticed if it is read several times.

Between two commands, a large file is compared by blocks of it (`sampled_sha256`).
"""

from __future__ import annotations

import glob
import hashlib
import io
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from osbert.errors import Problems, UserError
from osbert.files import file_sha256, file_stamp
from osbert.guarded import LARGEST
from osbert.reading.compression import BUFFER, open_packed, split_compressions
from osbert.reading.encodings import bom_encoding

SMALL = 1 << 24
"""Most bytes on disk of a file whose content is kept, so that it is opened once."""
BEGINNING = 1 << 12
"""Bytes of decompressed content from which the form of a file is detected."""
BLOCK, BLOCKS = 1 << 16, 256
"""Bytes in a block, and most blocks of a file, that `sampled_sha256` reads: files of up to 16 MiB whole."""
THREADS = 8
"""Files that are hashed at a time."""
_PARTS = re.compile(r"-\*-of-(\d{5})\.parquet$")


def sampled_sha256(path: Path) -> str:
    """Return a hash of a file's size and content; of a large file, of BLOCKS blocks, evenly spaced, with both ends.

    Raises OSError as `open`.
    """
    size = path.stat().st_size
    last = max(0, size - BLOCK)
    whole = size <= BLOCK * BLOCKS
    starts = range(0, size, BLOCK) if whole else [last * index // (BLOCKS - 1) for index in range(BLOCKS)]
    digest = hashlib.sha256(f"{size}\n".encode())
    with path.open("rb") as file:
        for start in starts:
            file.seek(start)
            digest.update(file.read(BLOCK))
    return digest.hexdigest()


def all_sampled_sha256(paths: Sequence[Path]) -> list[str]:
    """Return `sampled_sha256` of each file, several at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(sampled_sha256, paths))


class DataFile:
    """A file, or a folder with one data set, as it was when it was first read.

    The content of a small file is kept: its form, its hash and every pass over its rows need one opening. A larger file
    is read anew by each pass, and its results are only used if the content is still the same.
    """

    def __init__(self, path: Path, *, name: str = "") -> None:
        """Open nothing yet. `name`: its name in messages, by default its path."""
        self.path = path
        self.name = name or str(path)

    @property
    def parts(self) -> list[DataFile]:
        """The files of a table in parts, in order; of a single file itself."""
        return [DataFile(path) for path in _files(self.path)] if in_parts(self.path) else [self]

    @cached_property
    def content(self) -> bytes | None:
        """The bytes on disk; None for folders and for files of more than SMALL bytes. Raises OSError as `open`."""
        if not self._stamp or self.path.is_dir() or in_parts(self.path) or self.path.stat().st_size > SMALL:
            return None
        with self.path.open("rb") as file:
            content = file.read(SMALL + 1)
        return content if len(content) <= SMALL else None

    def open_raw(self) -> BinaryIO:
        """Return the bytes on disk as an open file."""
        return self.path.open("rb") if self.content is None else io.BytesIO(self.content)

    def open(self) -> io.BufferedReader:
        """Return the decompressed content as an open file. Reading damaged data raises UserError."""
        if self.content is not None and not split_compressions(self.path.name)[1]:
            return io.BufferedReader(io.BytesIO(self.content), BUFFER)
        return open_packed(self.path, self.open_raw())

    @cached_property
    def beginning(self) -> bytes:
        """The first 4 KiB of the decompressed content; b"" for a folder."""
        if not self.path.is_file():
            return b""
        with self.open() as file:
            return file.read(BEGINNING)

    @property
    def first_text(self) -> str:
        """The beginning as text, without undecodable bytes."""
        return self.beginning.decode(bom_encoding(self.beginning), "ignore").removeprefix("\ufeff")

    def read_all(self) -> bytes:
        """Return the decompressed content. Raises UserError if it is too large."""
        with self.open() as file:
            content = file.read(self.most_unpacked + 1)
        if len(content) > self.most_unpacked:
            raise self.too_large()
        return content

    @property
    def most_unpacked(self) -> int:
        """The most bytes that a file which is read whole may unpack to: 64 MiB + 30 times its size, up to LARGEST."""
        return min(LARGEST, (1 << 26) + 30 * self.path.stat().st_size)

    def too_large(self) -> UserError:
        """Return the error for a file that unpacks to more than `most_unpacked` bytes."""
        return UserError(
            f"{self.path} has, or unpacks to, more than {self.most_unpacked:,} bytes, and files of its form are read "
            "whole. Split it, or write JSON lines, one object per line, which are read one by one.",
            code="too-large",
        )

    @cached_property
    def sha256(self) -> str:
        """The hash of the content, or of the names and hashes of a folder's files."""
        if self._stamp and self.content is not None:
            return hashlib.sha256(self.content).hexdigest()
        return _sha256(self.path)

    @cached_property
    def _stamp(self) -> Any:
        return _stamp(self.path)  # read before the content, so that a change during the reading is noticed later

    def problems(self) -> Problems:
        """Return a collector for bad rows of a later pass; the first pass could read all rows."""
        problems = Problems(heading=f"{self.name} changed while it was read; run the command again")
        problems.codes["file-changed"] = None  # before those of its rows
        return problems

    def require_same(self, *, whole: bool = False) -> None:
        """Raise UserError if the file has changed: by its stamp, and by its content if the stamp differs.

        `whole`: compare the content also if the stamp is the same, unless every pass has read the content kept here.
        """
        before = self.sha256
        try:
            stamp = _stamp(self.path)
            same = stamp == self._stamp and not (whole and self.content is None)
            same = same or _sha256(self.path) == before
        except FileNotFoundError:
            same = False
        if not same:
            raise UserError(f"{self.name} changed while it was read. Run the command again.", code="file-changed")
        self._stamp = stamp

    def require_rows(self, row_count: int, count: int) -> None:
        """Raise UserError if a later pass reads another number of rows than the first (`count`)."""
        if row_count != count:
            raise UserError(
                f"{self.name} changed while it was read: it had {count:,} rows, and then {row_count:,}. "
                "Run the command again.",
                code="file-changed",
            )


def in_parts(path: Path) -> bool:
    """Return whether a path, such as train-*-of-00002.parquet, stands for a Parquet table whose parts are all there."""
    count = _PARTS.search(path.name)
    return count is not None and len(_parts(path)) == int(count[1])


def _parts(path: Path) -> list[Path]:
    return sorted(path.parent.glob(glob.escape(path.name).replace("[*]", "[0-9]" * 5)))


def _stamp(path: Path) -> Any:
    """Return the stamp of a file, or the names and stamps of the files of a folder or of the parts of a table."""
    if path.is_dir() or in_parts(path):
        return [(file.name, file_stamp(file)) for file in _files(path)]
    return file_stamp(path)


def _sha256(path: Path) -> str:
    """Return the hash of a file, or of the names and hashes of the files of a folder or of the parts of a table."""
    if not path.is_dir() and not in_parts(path):
        return file_sha256(path)
    listed = [f"{file.name!r} {file_sha256(file)}" for file in _files(path)]
    return hashlib.sha256("\n".join(listed).encode("utf-8", "surrogatepass")).hexdigest()


def _files(folder: Path) -> list[Path]:
    """Return the parts of a table, or the files of a folder without hidden ones, such as the lock of an output."""
    if in_parts(folder):
        return _parts(folder)
    return sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
