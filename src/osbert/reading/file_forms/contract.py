"""The contract of a form of files that are read whole, or of folders with one data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from osbert.errors import UserError
from osbert.guarded import LARGEST
from osbert.reading.compression import open_packed
from osbert.reading.form import TableReading, bom_encoding, decoding_error, find_encoding

Entry: TypeAlias = tuple[int, Mapping[str, Any] | ValueError]
"""The number of a record, and its row or the error that prevents one."""
FOLDER = "/"
"""The ending of folders in `FileForm.suffixes`."""
_BEGINNING = 1 << 12


@dataclass(frozen=True)
class Beginning:
    """The decompressed beginning of a file, from which its form is detected. That of a folder is empty."""

    path: Path

    @cached_property
    def raw(self) -> bytes:
        """Return the first 4 KiB."""
        if not self.path.is_file():
            return b""
        with open_packed(self.path) as file:
            return file.read(_BEGINNING)

    @cached_property
    def text(self) -> str:
        """Return them as text; undecodable bytes are dropped."""
        return self.raw.decode(bom_encoding(self.raw), "ignore")


class FileForm:
    """A form of files that are read whole."""

    title: ClassVar[str]
    """Its name in messages."""
    unit: ClassVar[str] = "record"
    """The unit that its records are numbered by."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """The endings of its files, without those of compression: "" for files that have none, FOLDER for folders. Of other
    files and folders it is not asked; () if it is of all."""

    @classmethod
    def claims(cls, beginning: Beginning) -> bool:
        """Return whether a file with one of its endings is of this form."""
        raise NotImplementedError

    def load(self, path: Path, reading: TableReading) -> list[Entry]:
        """Return the records of a file, as rows or, if a record form reads them further, unchanged.

        Raises UserError if the file is damaged, too large, or not of this form.
        """
        raise NotImplementedError


def whole_text(path: Path, encoding: str) -> str:
    """Return the whole text of a file. Raises UserError if it is too large or not text in its encoding."""
    name = find_encoding(path, encoding)
    try:
        return whole(path).decode(name)
    except UnicodeError as error:
        raise decoding_error(path, name) from error


def whole(path: Path) -> bytes:
    """Return the decompressed content of a file. Raises UserError if it is too large."""
    most = most_unpacked(path)
    with open_packed(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise too_large(path, most)
    return content


def most_unpacked(path: Path) -> int:
    """Return the most bytes that a file may unpack to: 64 MiB + 30 times its size, and at most LARGEST."""
    return min(LARGEST, (1 << 26) + 30 * path.stat().st_size)


def too_large(path: Path, most: int) -> UserError:
    """Return the error for a file that unpacks to more than `most` bytes."""
    return UserError(
        f"{path} has, or unpacks to, more than {most:,} bytes, and files of its form are read whole. Cut it, or write "
        "JSON lines, one object a line, which are read one by one.",
        code="too-large",
    )
