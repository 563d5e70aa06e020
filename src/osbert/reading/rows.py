"""The rows of a table: CSV, TSV, JSON lines, Parquet and plain lines, each with the line on which it begins."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeAlias

from osbert.errors import Problems, not_json
from osbert.guarded import parse_json
from osbert.reading.delimited import parse
from osbert.reading.form import Format, decoding_error, open_text, plain_suffix, without_hint
from osbert.reading.parquet import read_rows


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: the `line` on which it begins (from 1), its `values` as text, and `source`, the original JSON object.

    The line of a Parquet row is its number. `nulls`: columns without a value, if the format distinguishes that from an
    empty text. `nested`: columns with a list or an object. `blank`: whether it is a blank line of a file of one column.
    `record`: the original record if it is not `source`: the object of an annotation tool, or the values of a Parquet
    file, which need not be valid JSON.
    """

    line: int
    values: Mapping[str, str]
    source: Mapping[str, Any] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()
    nested: frozenset[str] = frozenset()
    blank: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    nonfinite: frozenset[str] = frozenset()
    """Columns with NaN or infinity in them, for which JSON has no number."""


@dataclass(frozen=True, kw_only=True)
class CellStyle:
    """The style of a delimited file to write. `start`: the text before its first row."""

    delimiter: str
    newline: str = "\n"
    start: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file with its detected form."""

    path: Path
    format: Format

    @property
    def unit(self) -> str:
        """Return the unit that its rows are numbered by, such as "line"."""
        return self.format.unit

    @property
    def origin(self) -> str:
        """Return the origin of its rows for messages, before the number of a row; "" for none."""
        return str(self.path)

    @property
    def called(self) -> str:
        """Return the name of the table in messages."""
        return self.origin

    def place(self, line: int) -> str:
        """Return the place of a row for messages, such as "train.csv, line 3"."""
        return f"{self.origin}, {self.unit} {line}" if self.origin else f"{self.unit} {line}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return self.format.columns

    def describe(self) -> str:
        """Describe the detected form."""
        return f"{self.called}: {self.format.describe()}"

    def style(self, suffix: str) -> CellStyle:
        """Return how a file with the ending `suffix` is written whose rows are this one's.

        Of the same ending it keeps the byte-order mark, the line ends, Excel's hint and, in .csv, the delimiter, so
        that the program that wrote the one opens the other.
        """
        form = self.format
        delimiter = "\t" if suffix == ".tsv" else ","
        if form.kind != "delimited" or plain_suffix(self.path) != suffix:
            return CellStyle(delimiter=delimiter)
        if suffix == ".csv" and len(form.delimiter) == 1:
            delimiter = form.delimiter
        hint = f"sep={delimiter}{form.newline}" if form.hint else ""
        mark = "\ufeff" if form.encoding in ("utf-8-sig", "utf-16", "utf-32") else ""
        return CellStyle(delimiter=delimiter, newline=form.newline, start=mark + hint)

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the rows; a row that cannot be read is skipped and added to `problems`.

        A blank line is a row if there is one column (also for plain lines), and is skipped otherwise. Raises UserError
        for bytes that are not text in the encoding of the file.
        """
        if self.format.kind == "parquet":
            for number, values in enumerate(read_rows(self.path), 1):
                yield replace(row_of(values, number), source={}, record=values)
            return
        read = {"delimited": self._read_delimited, "jsonl": self._read_objects, "lines": self._read_lines}[
            self.format.kind
        ]
        try:
            with open_text(self.path, self.format.encoding) as file:
                yield from read(file, problems)
        except UnicodeDecodeError as error:
            raise decoding_error(self.path, self.format.encoding) from error

    def _read_delimited(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
        form = self.format
        rows = parse(
            without_hint(lines),
            delimiter=form.delimiter,
            quotes=form.quotes,
            name=str(self.path),
            problems=problems,
            blanks=len(form.columns) == 1,
        )
        if form.header:
            next((cells for _, cells in rows if cells), None)
        for line, cells in rows:
            if not cells:
                if not (form.hint and line == 1):
                    yield Row(line=line, values={form.columns[0]: ""}, blank=True)
            elif len(cells) in (len(form.columns), len(form.columns) + form.surplus):
                yield Row(line=line, values=dict(zip(form.columns, cells)))
            else:
                problems.add(
                    f"{self.path}, line {line}: {len(cells)} cells, but there are {len(form.columns)} columns "
                    f"({', '.join(form.columns)}). {_remedy(form, len(cells))}",
                    code="unusable-row",
                )

    def _read_objects(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line, unique_keys=True)
            except JSONDecodeError as error:
                problems.add(
                    f"{self.path}, line {number}: not JSON ({not_json(error)} at character {error.colno}).",
                    code="wrong-format",
                )
                continue
            if isinstance(value, dict):
                yield row_of(value, number)
            else:
                problems.add(
                    f"{self.path}, line {number}: {line.strip()[:40]!r} is not an object {{...}}.", code="wrong-format"
                )

    def _read_lines(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            text = line.rstrip("\r\n")
            if "\r" in text:
                problems.add(
                    f"{self.path}, line {number}: it holds a carriage return, at character {text.index(chr(13)) + 1}. "
                    "If that is a line end, convert the file: tr '\\r' '\\n'; if not, make it a space.",
                    code="unusable-row",
                )
            else:
                yield Row(line=number, values={"text": text}, blank=not text.strip())


Origin: TypeAlias = Path | Table
"""The source of rows: a file, or an open table such as rows in memory."""


def row_of(value: Mapping[str, Any], line: int) -> Row:
    """Return the row of a JSON object or a similar mapping. NaN, which pandas writes, becomes null."""
    nonfinite = frozenset(name for name, cell in value.items() if _holds_nonfinite(cell))
    value = _without_nan(value) if nonfinite else dict(value)
    return Row(
        line=line,
        values={name: _text(cell) for name, cell in value.items()},
        source=value,
        nulls=frozenset(name for name, cell in value.items() if cell is None),
        nested=frozenset(name for name, cell in value.items() if isinstance(cell, list | dict)),
        nonfinite=nonfinite,
    )


def _holds_nonfinite(cell: Any) -> bool:
    if isinstance(cell, float):
        return not math.isfinite(cell)
    if isinstance(cell, list | dict):
        return any(map(_holds_nonfinite, cell.values() if isinstance(cell, dict) else cell))
    return False


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with null for NaN, which pandas writes for what is absent."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}


def _text(value: Any) -> str:
    """Return a JSON or Parquet value as the text a CSV cell would hold; null is an empty cell."""
    if value is None:
        return ""
    if isinstance(value, bytes):  # a binary column of Parquet, numpy's text of one byte a character
        return value.decode("utf-8", "replace")
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value if isinstance(value, str) else str(value)  # a date or a decimal, which JSON would put in quotes


def _remedy(form: Format, cells: int) -> str:
    if form.quotes and cells > len(form.columns):
        return "Does a text hold the delimiter? Put that text in double quotes."
    return "Does the line break off, or a text hold a line end?"
