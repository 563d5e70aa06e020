"""Folders of texts by class, such as pos/ and neg/ of the Large Movie Review Dataset: each file is a text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar

from osbert.errors import UserError
from osbert.guarded import LARGEST, read_bytes
from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading, plain_suffix
from osbert.reading.splits import USUAL, plain_name
from osbert.reading.table import FOLDER, Entry, FileForm

_LOOKED = 10
"""Number of first entries of a folder by which it is recognised."""
_SPLITS = frozenset(name for names in USUAL.values() for name in names)


class ClassFolders(FileForm):
    """A folder with two or more folders of .txt files, or of files without an ending; their names are the labels."""

    title: ClassVar[str] = "folders of texts by class"
    unit: ClassVar[str] = "text"
    suffixes = (FOLDER,)

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a folder has folders of texts, two or more in each, and nothing with the name of a split."""
        entries = [*_visible(file.path)]
        folders = [entry for entry in entries if entry.is_dir()]
        named = any(plain_name(entry) in _SPLITS for entry in entries)
        return len(folders) > 1 and not named and all(map(_has_texts, folders))

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the texts in the order of their names. Raises UserError if one is not in its encoding."""
        entries: list[Entry] = []
        left = LARGEST
        folders = filter(Path.is_dir, sorted(_visible(file.path)))
        for path in (path for folder in folders for path in sorted(_visible(folder)) if _is_text(path)):
            content = read_bytes(path, most=max(left, 0))
            left -= len(content)
            row = {"file": f"{path.parent.name}/{path.name}", "text": _decode(path, content, reading.encoding)}
            entries.append((len(entries) + 1, row | {"label": path.parent.name}))
        return entries


def _visible(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder but for hidden files, in no order."""
    return (path for path in folder.iterdir() if not path.name.startswith("."))


def _is_text(path: Path) -> bool:
    return path.is_file() and plain_suffix(path) in (".txt", "")


def _has_texts(folder: Path) -> bool:
    """Return whether a folder has texts, and is not itself a data set with train.txt and dev.txt."""
    first = [*islice(_visible(folder), _LOOKED)]
    return len(first) > 1 and all(_is_text(path) and plain_name(path) not in _SPLITS for path in first)


def _decode(path: Path, content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding or "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not {encoding or 'UTF-8'} (byte {error.start:,}). Name the encoding of the texts with "
            "--encoding, such as latin-1.",
            code="wrong-encoding",
        ) from error
