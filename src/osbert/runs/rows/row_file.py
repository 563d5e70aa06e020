"""Writes rows of results one by one into a table: CSV, TSV or JSON lines; the file appears only when complete."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from osbert.errors import UserError
from osbert.files import require_file, writing_output
from osbert.lock import claim

SUFFIXES = (".csv", ".tsv", ".jsonl")
WriteRow = Callable[[Sequence[object]], None]
"""Writes one row, its values in the order of the columns."""


def require_row_file(out: Path, inputs: Sequence[Path]) -> None:
    """Raise UserError if a path has no suffix of a table, or is one of `inputs`."""
    require_file(out, inputs)
    if out.suffix not in SUFFIXES:
        raise UserError(
            f"{out}: these rows are written as {', '.join(SUFFIXES)}: give one as its ending.",
            code="unknown-output-format",
        )


@dataclass(frozen=True, kw_only=True)
class RowText:
    """Rows of a table as text, in the format of `suffix`, with the columns `columns`.

    >>> text = RowText(suffix=".csv", columns=["line", "text"])
    >>> text.header, text.row([1, "a film"])
    ('line,text\\n', '1,a film\\n')
    """

    suffix: str
    columns: Sequence[str]

    @property
    def header(self) -> str:
        """The text before the first row: the header, or "" for JSON lines."""
        return "" if self.suffix == ".jsonl" else self._line(self.columns)

    def row(self, row: Sequence[object]) -> str:
        """Return one row as text, its values in the order of the columns."""
        if self.suffix == ".jsonl":
            return json.dumps(dict(zip(self.columns, row, strict=True)), ensure_ascii=False) + "\n"
        return self._line(row)

    def _line(self, cells: Sequence[object]) -> str:
        line = io.StringIO()
        csv.writer(line, delimiter="\t" if self.suffix == ".tsv" else ",", lineterminator="\n").writerow(cells)
        return line.getvalue()


@contextmanager
def row_file(out: Path, columns: Sequence[str]) -> Iterator[WriteRow]:
    """Yield a function that writes rows into a file, which gets its name when the block ends.

    >>> with row_file(Path("rows.csv"), ["line", "text"]) as write:
    ...     _ = write([1, "a film"])
    >>> Path("rows.csv").read_text()
    'line,text\\n1,a film\\n'
    """
    with claim(out) as claimed, writing_output(claimed) as path, path.open("w", encoding="utf-8", newline="") as file:
        text = RowText(suffix=out.suffix, columns=columns)
        file.write(text.header)

        def write(row: Sequence[object]) -> None:
            file.write(text.row(row))

        yield write
