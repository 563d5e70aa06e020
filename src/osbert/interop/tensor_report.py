"""Report on the tensors of a folder: status, whether it is expected, and a remark for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from osbert.errors import Problems
from osbert.interop.huggingface.names import PIECES

ROUND = (8, 16, 32, 64, 128)
"""Tables of pieces are often padded to multiples of these numbers, for speed; their last rows belong to no piece."""
FEW = 1 / 8
"""Largest fraction of a table that such rows may have."""

Status = Literal["loaded", "new", "unused"]


@dataclass(frozen=True, kw_only=True)
class TensorRow:
    """The status of one tensor, named as in the file without the backbone's prefix.

    "new": not in the file, newly initialised; "unused": in the file, but not needed. `expected` is False if the user
    should check it; `remark` is the reason.
    """

    name: str
    shape: tuple[int, ...]
    status: Status
    expected: bool = True
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The rows of all tensors that were loaded, newly initialised, or unused."""

    rows: tuple[TensorRow, ...]

    @property
    def problems(self) -> tuple[TensorRow, ...]:
        """Return the rows that are not as expected."""
        return tuple(row for row in self.rows if not row.expected)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what the user should know, a line each: what starts afresh, and what in the file is strange."""
        fresh = [f"{row.name} starts afresh: {row.remark}" for row in self.rows if row.status == "new"]
        used = [f"{row.name} {row.shape}: {row.remark}" for row in self.problems if row.status == "loaded"]
        strange = [
            f"{row.name} {row.shape} is not used: {row.remark}" for row in self.problems if row.status == "unused"
        ]
        more = [f"... and {len(strange) - 5:,} more that are not used"] if len(strange) > 5 else []
        return (*fresh, *used, *strange[:5], *more)

    def select_names(self, status: Status) -> tuple[str, ...]:
        """Return the names of the rows with a status."""
        return tuple(row.name for row in self.rows if row.status == status)

    def require_complete(self, where: str, *, but: str = "") -> None:
        """Raise UserError if anything had to be made new: `where`, the folder, is then no finished model.

        `but`: how the names of tensors begin that nothing reads, "" for none.
        """
        problems = Problems(heading=f"{where} lacks weights that a finished model has")
        for row in self.rows:
            if row.status == "new" and not (but and row.name.startswith(but)):
                problems.add(f"{row.name} {row.shape}{f': {row.remark}' if row.remark else ''}", code="damaged-file")
        problems.stop_if_any()


def of_pieces(row: TensorRow, pieces: int) -> TensorRow:
    """Return the report row of the piece embeddings, with a remark if the table has more rows than `pieces`.

    Rows that pad the table to a round number are expected. Report rows of other tensors are returned unchanged.
    """
    if row.name != PIECES or row.shape[0] == pieces:
        return row
    spare = row.shape[0] - pieces
    further = f"the last {spare:,} rows belong to no piece"
    if spare <= FEW * row.shape[0] and row.shape[0] in {-(-pieces // multiple) * multiple for multiple in ROUND}:
        return replace(row, remark=f"{further}: made a round number")
    remark = f"{further}: the vocabulary has {pieces:,}. Is it the one that the model was trained with?"
    return replace(row, expected=False, remark=remark)
