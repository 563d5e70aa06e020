"""Detects changes of a file that is read more than once: compares its SHA-256 if its stamp differs.

Between two commands, a large file is compared by blocks of it (`sampled_sha256`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from osbert.errors import Problems, UserError
from osbert.files import file_sha256, file_stamp

BLOCK, BLOCKS = 1 << 16, 256
"""Bytes in a block, and most blocks of a file, that `sampled_sha256` reads: files of up to 16 MiB whole."""
THREADS = 8
"""Files that are hashed at a time."""


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


class Snapshot:
    """The content of a file, or of the files of a folder, at one time.

    Results of a later pass are only used if the content is still the same.
    """

    def __init__(self, path: Path, *, name: str = "") -> None:
        """Read the whole file. `name`: its name in messages, by default its path."""
        self.path = path
        self.name = name or str(path)
        self._stamp = _stamp(path)  # before the content, so that a change while it is read is seen later
        self.sha256 = _sha256(path)

    def problems(self) -> Problems:
        """Return a collector for bad rows of a later pass; the first pass could read all rows."""
        problems = Problems(heading=f"{self.name} changed while it was read; give the command again")
        problems.codes["file-changed"] = None  # before those of its rows
        return problems

    def require_same(self, *, whole: bool = False) -> None:
        """Raise UserError if the file has changed. Its content is compared if the stamp differs, or if `whole`."""
        try:
            stamp = _stamp(self.path)
            same = (stamp == self._stamp and not whole) or _sha256(self.path) == self.sha256
        except FileNotFoundError:
            same = False
        if not same:
            raise UserError(f"{self.name} changed while it was read. Give the command again.", code="file-changed")
        self._stamp = stamp

    def require_rows(self, row_count: int, count: int) -> None:
        """Raise UserError if a later pass reads another number of rows than the first (`count`)."""
        if row_count != count:
            raise UserError(
                f"{self.name} changed while it was read: it had {count:,} rows, and then {row_count:,}. "
                "Give the command again.",
                code="file-changed",
            )


def _stamp(path: Path) -> Any:
    """Return the stamp of a file, or the names and stamps of the files of a folder."""
    return [(file.name, file_stamp(file)) for file in _files(path)] if path.is_dir() else file_stamp(path)


def _sha256(path: Path) -> str:
    """Return the hash of a file, or of the names and hashes of a folder's files."""
    if not path.is_dir():
        return file_sha256(path)
    listed = [f"{file.name!r} {file_sha256(file)}" for file in _files(path)]
    return hashlib.sha256("\n".join(listed).encode("utf-8", "surrogatepass")).hexdigest()


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder without hidden ones, such as the lock of an output."""
    return sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
