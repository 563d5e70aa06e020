"""Whether a file that is read more than once is still the same: its SHA-256, compared when its stamp has changed."""

from __future__ import annotations

from pathlib import Path

from osbert.errors import Problems, UserError
from osbert.files import file_sha256, file_stamp


class Snapshot:
    """The content of a file at one time. What a later pass reads is only used while the file still has it."""

    def __init__(self, path: Path, *, name: str = "") -> None:
        """Read the file whole. `name` is what messages call it; its path if left open."""
        self.path = path
        self.name = name or str(path)
        self._stamp = file_stamp(path)  # before the content, so that a change while it is read is seen later
        self.sha256 = file_sha256(path)

    def problems(self) -> Problems:
        """Return where a later pass notes the rows that it cannot read: the first pass could read all."""
        problems = Problems(heading=f"{self.name} changed while it was read; give the command again")
        problems.codes["file-changed"] = None  # before those of its rows
        return problems

    def require_same(self, *, whole: bool = False) -> None:
        """Raise UserError if the file has changed. Its content is compared if its stamp differs, or if `whole`."""
        try:
            stamp = file_stamp(self.path)
            same = (stamp == self._stamp and not whole) or file_sha256(self.path) == self.sha256
        except FileNotFoundError:
            same = False
        if not same:
            raise UserError(f"{self.name} changed while it was read. Give the command again.", code="file-changed")
        self._stamp = stamp

    def require_rows(self, found: int, count: int) -> None:
        """Raise UserError if a later pass found another number of rows than the first, which found `count`."""
        if found != count:
            raise UserError(
                f"{self.name} changed while it was read: it had {count:,} rows, and then {found:,}. "
                "Give the command again.",
                code="file-changed",
            )
