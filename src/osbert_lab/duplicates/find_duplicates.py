"""Finds near duplicates among texts by their vectors. The first text of a group is kept; a file lists the groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.vectors.reading import VectorFile, VectorRow
from osbert.runs.contract import Watch, WorkProgress, ignore
from osbert.runs.rows.table import require_output, write_values
from osbert.terminal import format_count
from osbert_lab.duplicates.comparison import Duplicates
from osbert_lab.vector_input import VectorInput

LARGEST = 20
"""Most groups in the result."""


@dataclass(frozen=True, kw_only=True)
class DuplicateGroup:
    """The line of a kept text, and the lines of its near duplicates."""

    line: int
    texts: Sequence[str]
    others: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class DuplicateTally:
    """The duplicates among `rows` texts: their number, the number of groups, and the largest groups.

    `kept_lines`: the lines of all texts that are not duplicates, in their order.
    """

    reported: ClassVar[tuple[str, ...]] = ("path", "rows", "duplicates", "groups", "largest")

    path: Path | None
    rows: int
    duplicates: int
    groups: int
    largest: Sequence[DuplicateGroup]
    kept_lines: NDArray[np.int64]

    def lines(self) -> Iterator[str]:
        """Yield sentences with the counts and the largest groups."""
        target = f" -> {self.path}" if self.path else ""
        groups = format_count(self.groups, "group")
        yield f"{format_count(self.rows, 'text')}: {self.duplicates:,} repeat an earlier one, in {groups}{target}"
        for group in self.largest:
            more = f" and {len(group.others) - 5:,} more" if len(group.others) > 5 else ""
            other_lines = ", ".join(f"{line:,}" for line in group.others[:5])
            yield f"line {group.line:,}, again in {other_lines}{more}: {' | '.join(group.texts)}"


def find_duplicates(
    given: VectorInput, *, above: float = 0.95, out: Path | None = None, watch: Watch = ignore
) -> DuplicateTally:
    """Find texts whose cosine with an earlier kept text is at least `above`; see `Duplicates`.

    `out`: a .csv, .tsv, .jsonl, .parquet, .xlsx or .md file with all texts of groups: group, line, whether the text is
    kept, the line of the kept text that represents it, the cosine with that text, and the text. Memory holds some
    blocks, and a few numbers per text. Raises UserError for data that cannot be read or compared.
    """
    if not 0 < above <= 1:
        raise UserError(f"--above must be more than 0 and at most 1, not {above}.", code="invalid-value")
    if out is not None:
        require_output(out, given.files)
    with given.open(watch) as (opened, vectors):
        duplicates = Duplicates(vectors, above)
        duplicates.find(lambda done, count: watch(WorkProgress(of="comparison", done=done, count=count)))
        # found.kept[i] is the index of the kept text that represents text i, so the counts are the sizes of groups.
        sizes = np.bincount(duplicates.kept, minlength=len(vectors))
        if out is not None:
            _write(out, opened, duplicates, sizes)
        lines = np.fromiter((row.line for row in opened.all_rows()), np.int64, len(vectors))
        # A kept text represents itself.
        is_kept = duplicates.kept == np.arange(len(vectors))
        return DuplicateTally(
            path=out,
            rows=len(vectors),
            duplicates=int((~is_kept).sum()),
            groups=int((sizes > 1).sum()),
            largest=_largest(opened, duplicates.kept, sizes, lines),
            kept_lines=lines[is_kept],
        )


def _write(out: Path, opened: VectorFile, duplicates: Duplicates, sizes: NDArray[np.int64]) -> None:
    numbers = np.cumsum(sizes > 1)  # of groups, by the order of what is kept
    kept_lines: dict[int, int] = {}
    columns = ["group", "line", "kept", "kept_line", "cosine", *opened.text_names]

    def rows() -> Iterator[list[object]]:
        for index, row in enumerate(opened.all_rows()):
            kept_index = int(duplicates.kept[index])
            if sizes[kept_index] > 1:
                mark = "yes" if kept_index == index else "no"
                kept_line = kept_lines.setdefault(kept_index, row.line)  # the kept text comes first
                cosine = round(float(duplicates.cosines[index]), 6)
                yield [int(numbers[kept_index]), row.line, mark, kept_line, cosine, *row.texts]

    write_values(out, columns, rows())


def _largest(
    opened: VectorFile, kept_indices: NDArray[np.int64], sizes: NDArray[np.int64], lines: NDArray[np.int64]
) -> list[DuplicateGroup]:
    """Return the largest groups; of equal ones the first."""
    # A stable sort of the negative sizes: largest first, ties in the file's order. Groups of one are no groups.
    indices = [index for index in np.argsort(-sizes, kind="stable")[:LARGEST].tolist() if sizes[index] > 1]
    rows: list[VectorRow] = opened.rows(indices) if indices else []
    # The first member is the kept text itself, since a text is represented by an earlier one.
    members = (np.flatnonzero(kept_indices == index) for index in indices)
    return [
        DuplicateGroup(line=row.line, texts=row.texts, others=lines[member_indices[1:]].tolist())
        for row, member_indices in zip(rows, members, strict=True)
    ]
