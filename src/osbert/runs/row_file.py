"""Rows of results written as a table, a row at a time: CSV, TSV or JSON lines, whole or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from osbert.errors import UserError
from osbert.files import require_file, writing_output
from osbert.lock import claim

SUFFIXES = (".csv", ".tsv", ".jsonl")
WriteRow = Callable[[Sequence[object]], None]
"""What writes one row, its values in the order of the columns."""


def require_row_file(out: Path, inputs: Sequence[Path]) -> None:
    """Raise UserError if the ending of a path is that of no table, or the path is one of `inputs`."""
    require_file(out, inputs)
    if out.suffix not in SUFFIXES:
        raise UserError(
            f"{out}: these rows are written as {', '.join(SUFFIXES)}: give one as its ending.",
            code="unknown-output-format",
        )


@contextmanager
def row_file(out: Path, columns: Sequence[str]) -> Iterator[WriteRow]:
    """Give what writes rows into a file, which gets its name when the block ends. Raises OSError on a full disk.

    >>> with row_file(Path("rows.csv"), ["line", "text"]) as write:
    ...     _ = write([1, "a film"])
    >>> Path("rows.csv").read_text()
    'line,text\\n1,a film\\n'
    """
    with claim(out) as claimed, writing_output(claimed) as path, path.open("w", encoding="utf-8", newline="") as file:
        if out.suffix == ".jsonl":
            yield lambda row: print(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False), file=file)
        else:
            rows = csv.writer(file, delimiter="\t" if out.suffix == ".tsv" else ",", lineterminator="\n")
            rows.writerow(columns)
            yield rows.writerow
