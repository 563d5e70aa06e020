"""Writes rows of results one by one into a table: CSV, TSV or JSON lines; the file appears only when complete."""

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
WriteRow = Callable[[Sequence[object]], object]
"""Writes one row, its values in the order of the columns."""


def require_row_file(out: Path, inputs: Sequence[Path]) -> None:
    """Raise UserError if a path has no suffix of a table, or is one of `inputs`."""
    require_file(out, inputs)
    if out.suffix not in SUFFIXES:
        raise UserError(
            f"{out}: these rows are written as {', '.join(SUFFIXES)}: give one as its ending.",
            code="unknown-output-format",
        )


@contextmanager
def row_file(out: Path, columns: Sequence[str]) -> Iterator[WriteRow]:
    """Yield a function that writes rows into a file, which gets its name when the block ends.

    >>> with row_file(Path("rows.csv"), ["line", "text"]) as write:
    ...     _ = write([1, "a film"])
    >>> Path("rows.csv").read_text()
    'line,text\\n1,a film\\n'
    """
    with claim(out) as claimed, writing_output(claimed) as path, path.open("w", encoding="utf-8", newline="") as file:
        if out.suffix == ".jsonl":

            def write(row: Sequence[object]) -> None:
                file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")

        else:
            write = csv.writer(file, delimiter="\t" if out.suffix == ".tsv" else ",", lineterminator="\n").writerow
            write(columns)
        yield write
