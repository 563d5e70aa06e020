"""One's own tables, row by row: CSV, TSV, JSON lines, Parquet and plain lines, every row with the line it begins on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from osbert.corpus.parquet import read_rows
from osbert.data.table_format import Format, Reading, decoding_error, find_format, open_text
from osbert.data.table_rows import parse
from osbert.errors import Problems, not_json
from osbert.guarded import parse_json

__all__ = ["Reading", "Row", "Table", "open_table"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: the `line` it begins on (from 1), its `values` as text, and for JSON lines the object as it stood.

    A row of a Parquet file has its number for a line. `nulls`: the columns that hold nothing, where the format can tell
    that from an empty text.
    """

    line: int
    values: Mapping[str, str]
    source: Mapping[str, Any] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file and the form it was found to have."""

    path: Path
    format: Format

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return self.format.columns

    def describe(self) -> str:
        """Return what was found, in words."""
        return f"{self.path}: {self.format.describe()}"

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the rows one at a time; a row that cannot be read is noted in `problems` and left out.

        Blank lines are passed over. Raises UserError at bytes that are not text in the file's encoding.
        """
        if self.format.kind == "parquet":
            for number, row in enumerate(map(_without_nan, read_rows(self.path)), 1):
                yield Row(line=number, values=_texts(row), nulls=_nulls(row))
            return
        read = {"delimited": self._delimited, "jsonl": self._objects, "lines": self._lines}[self.format.kind]
        try:
            with open_text(self.path, self.format.encoding) as file:
                yield from read(file, problems)
        except UnicodeDecodeError as error:
            raise decoding_error(self.path, self.format.encoding) from error

    def _delimited(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
        form = self.format
        rows = parse(lines, delimiter=form.delimiter, quotes=form.quotes, name=str(self.path), problems=problems)
        if form.header:
            next(rows, None)
        for line, cells in rows:
            if len(cells) == len(form.columns):
                yield Row(line=line, values=dict(zip(form.columns, cells)))
                continue
            problems.add(
                f"{self.path}, line {line}: {len(cells)} cells, but there are {len(form.columns)} columns "
                f"({', '.join(form.columns)}). {_remedy(form, len(cells))}"
            )

    def _objects(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line)
            except JSONDecodeError as error:
                problems.add(f"{self.path}, line {number}: not JSON ({not_json(error)} at character {error.colno}).")
                continue
            if isinstance(value, dict):
                value = _without_nan(value)
                yield Row(line=number, values=_texts(value), source=value, nulls=_nulls(value))
            else:
                problems.add(f"{self.path}, line {number}: {line.strip()[:40]!r} is not an object {{...}}.")

    def _lines(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield Row(line=number, values={"text": line.rstrip("\r\n")})


def open_table(path: Path, reading: Reading = Reading()) -> Table:  # noqa: B008 - Reading is frozen
    """Find the form of a file and return it as a Table; `reading` holds what the user says about it.

    Raises UserError when the file is absent, empty, or no table.
    """
    return Table(path=path, format=find_format(path, reading))


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in row.items()}


def _nulls(row: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name, value in row.items() if value is None)


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with null for NaN, which pandas writes for what is absent."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}


def _text(value: Any) -> str:
    """Return a JSON or Parquet value as the text a CSV cell would hold; null is an empty cell."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _remedy(form: Format, cells: int) -> str:
    if form.quotes and cells > len(form.columns):
        return "Does a text hold the delimiter? Put that text in double quotes."
    return "Does the line break off, or a text hold a line end?"
