"""Whether a file that is read more than once is still the same: its SHA-256, compared when its facts have changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from osbert.errors import Problems, UserError

_Facts = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of the content and of the inode."""


class Snapshot:
    """The content of a file at one time. What a later pass reads is only used while the file still has it."""

    def __init__(self, path: Path, *, name: str = "") -> None:
        """Read the file whole. `name` is what messages call it; its path if left open."""
        self.path = path
        self.name = name or str(path)
        self._facts = _facts(path)  # before the content, so that a change while it is read is seen later
        self.sha256 = _sha256(path)

    def problems(self) -> Problems:
        """Return where a later pass notes the rows that it cannot read: the first pass could read all."""
        return Problems(heading=f"{self.name} changed while it was read; give the command again")

    def require_same(self, *, whole: bool = False) -> None:
        """Raise UserError if the file has changed. Its content is compared if its facts differ, or if `whole`."""
        try:
            facts = _facts(self.path)
            same = (facts == self._facts and not whole) or _sha256(self.path) == self.sha256
        except FileNotFoundError:
            same = False
        if not same:
            raise UserError(f"{self.name} changed while it was read. Give the command again.")
        self._facts = facts

    def require_rows(self, found: int, count: int) -> None:
        """Raise UserError if a later pass found another number of rows than the first, which found `count`."""
        if found != count:
            raise UserError(
                f"{self.name} changed while it was read: it had {count:,} rows, and then {found:,}. "
                "Give the command again."
            )


def _facts(path: Path) -> _Facts:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
