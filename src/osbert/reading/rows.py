"""The rows of a table, one by one: CSV, TSV, JSON lines, Parquet and plain lines, each with the line it begins on."""

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
    """One row: the `line` it begins on (from 1), its `values` as text, and for JSON lines the object as it stood.

    A row of a Parquet file has its number for a line. `nulls`: the columns that hold nothing, where the format can tell
    that from an empty text; `nested`: those that hold a list or an object. `blank`: whether the row is a blank line of
    a file of one column. `record`: what the file holds, where `source` is not that: an annotation tool's object, or the
    values of a Parquet file, which need not be JSON's.
    """

    line: int
    values: Mapping[str, str]
    source: Mapping[str, Any] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()
    nested: frozenset[str] = frozenset()
    blank: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CellStyle:
    """How a delimited file is written. `start`: what stands before its first row."""

    delimiter: str
    newline: str = "\n"
    start: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file and its detected form."""

    path: Path
    format: Format

    @property
    def unit(self) -> str:
        """Return what its rows are numbered by."""
        return self.format.unit

    @property
    def origin(self) -> str:
        """Return where its rows come from, as messages show it before a row's number; "" for nothing to show."""
        return str(self.path)

    @property
    def called(self) -> str:
        """Return what messages call the table."""
        return self.origin

    def place(self, line: int) -> str:
        """Return the place of a row as messages show it."""
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
        """Yield the rows one at a time; a row that cannot be read is noted in `problems` and left out.

        A blank line is a row where there is one column, lines of text included; elsewhere it is passed over. Raises
        UserError at bytes that are not text in the file's encoding.
        """
        if self.format.kind == "parquet":
            for number, values in enumerate(read_rows(self.path), 1):
                yield replace(row_of(values, number), source={}, record=values)
            return
        read = {"delimited": self._delimited, "jsonl": self._objects, "lines": self._lines}[self.format.kind]
        try:
            with open_text(self.path, self.format.encoding) as file:
                yield from read(file, problems)
        except UnicodeDecodeError as error:
            raise decoding_error(self.path, self.format.encoding) from error

    def _delimited(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
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

    def _objects(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
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

    def _lines(self, lines: Iterator[str], problems: Problems) -> Iterator[Row]:
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
"""Where rows come from: a file, or a table that is open already, such as rows in memory."""


def row_of(value: Mapping[str, Any], line: int) -> Row:
    """Return the row that an object of JSON lines, or one like it, holds. NaN, which pandas writes, is null."""
    value = _without_nan(value)
    return Row(
        line=line,
        values={name: _text(cell) for name, cell in value.items()},
        source=value,
        nulls=frozenset(name for name, cell in value.items() if cell is None),
        nested=frozenset(name for name, cell in value.items() if isinstance(cell, list | dict)),
    )


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
