"""Opens tables of users: detects the form of a file, and reads the records of annotation tools as plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from osbert import components
from osbert.errors import Problems, UserError
from osbert.reading.file_forms.contract import FOLDER, Beginning, Entry, FileForm
from osbert.reading.form import Format, TableReading, find_format, plain_suffix
from osbert.reading.record_forms.contract import RecordForm
from osbert.reading.rows import CellStyle, Origin, Row, Table, row_of
from osbert.terminal import one_line

_LOOKED = 1000
"""Number of records that the form and the columns are detected from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeTable(Table):
    """A file that is read whole, with its records."""

    entries: Sequence[Entry]

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the rows; a record that cannot be read is noted in `problems`."""
        for number, value in self.entries:
            if isinstance(value, ValueError):
                problems.add(f"{self.place(number)}: {one_line(str(value))}.", code="unusable-row")
            else:
                yield row_of(value, number)


@dataclass(frozen=True, kw_only=True, eq=False)
class AnnotatedTable(Table):
    """A table of an annotation tool as plain rows; `record` of a row is the original record of the tool."""

    inner: Table
    form: RecordForm

    @property
    def origin(self) -> str:
        """Return the origin of the inner table."""
        return self.inner.origin

    @property
    def called(self) -> str:
        """Return the name of the table in messages."""
        return self.inner.called

    def rows(self, problems: Problems) -> Iterator[Row]:
        """Yield the rows; a record that cannot be read is noted in `problems`."""
        for row in self.inner.rows(problems):
            record = _record(row)
            try:
                plain_rows = list(self.form.read(record))
            except ValueError as error:
                problems.add(f"{self.place(row.line)}: {one_line(str(error))}.", code="unusable-row")
            else:
                whole = record if len(plain_rows) == 1 else {}  # of several rows none is the record
                yield from (
                    replace(row_of(plain_row, row.line), record=whole, nonfinite=row.nonfinite)
                    for plain_row in plain_rows
                )


def is_whole(path: Path) -> bool:
    """Return whether a file, or a folder, is read whole."""
    return path.exists() and _file_form(path) is not None


def find_whole(path: Path, reading: TableReading) -> WholeTable | None:
    """Return a file, or a folder, that is read whole; None if no file form claims it.

    Raises UserError if it is damaged or too large.
    """
    form = _file_form(path) if path.exists() else None
    if form is None:
        return None
    entries = form().load(path, reading)
    rows = [value for _, value in entries if isinstance(value, Mapping)]
    file_format = Format(kind="records", encoding="", columns=_columns(rows), title=form.title, unit=form.unit)
    return WholeTable(path=path, format=file_format, entries=entries)


def as_annotated(table: Table) -> AnnotatedTable | None:
    """Return a table read as that of an annotation tool; None if no record form claims one of its first records."""
    kind = table.format.kind
    headed = any(form.heading in table.columns for form in _record_forms())
    if not (table.format.objects or (kind == "delimited" and headed)):
        return None
    sample = [_record(row) for row in islice(table.rows(Problems(heading="", limit=0)), _LOOKED)]
    form = next((form for form in _record_forms() if sample and any(map(form.claims, sample))), None)
    if form is None:
        return None
    record_form = form(sample)
    rows = [row for record in sample for row in _readable(record_form, record)]
    container = {"delimited": "CSV", "jsonl": "JSON lines"}.get(kind, table.format.title or "rows in memory")
    title = (
        record_form.title
        if record_form.title.endswith("JSON") and container == "JSON array"
        else f"{record_form.title}, {container}"
    )
    table_format = replace(table.format, kind="records", columns=_columns(rows), title=title)
    return AnnotatedTable(path=table.path, format=table_format, inner=table, form=record_form)


def is_headed(path: Path) -> bool:
    """Return whether the first line of a file has a column of an annotation tool."""
    first = Beginning(path).text.split("\n", 1)[0]
    return any(form.heading and form.heading in first for form in _record_forms())


def _file_form(path: Path) -> type[FileForm] | None:
    suffix = FOLDER if path.is_dir() else plain_suffix(path)
    beginning = Beginning(path)
    return next((form for form in _file_forms(suffix) if form.claims(beginning)), None)


def _record(row: Row) -> Mapping[str, Any]:
    return row.source or row.record or row.values


def _readable(form: RecordForm, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        return list(form.read(record))
    except ValueError:
        return []  # the rows tell every such record with its number


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple({name: None for row in rows for name in row})


@cache
def _file_forms(suffix: str) -> tuple[type[FileForm], ...]:
    """Return the forms that a file with an ending may be of."""
    names = components.names("reading.file_forms")
    forms: list[type[FileForm]] = [components.find("reading.file_forms", name, base=FileForm) for name in names]
    return tuple(form for form in forms if suffix in (form.suffixes or (suffix,)))


@cache
def _record_forms() -> tuple[type[RecordForm], ...]:
    names = components.names("reading.record_forms")
    return tuple(components.find("reading.record_forms", name, base=RecordForm) for name in names)


__all__ = [
    "CellStyle",
    "Origin",
    "Row",
    "Table",
    "TableReading",
    "open_records",
    "open_table",
    "require_columns",
    "row_of",
]

_JSON = (".jsonl", ".ndjson", ".json")
_CELLS = (".csv", ".tsv", ".tab")


def open_table(path: Path, reading: TableReading = TableReading()) -> Table:  # noqa: B008 - TableReading is frozen
    """Return a file as a Table of the detected form. `reading`: what the user specifies about it.

    Raises UserError if the file does not exist, is empty, or is no table.
    """
    table = find_whole(path, reading) or Table(path=path, format=find_format(path, reading))
    return as_annotated(table) or table


def open_records(path: Path, reading: TableReading) -> Table | None:
    """Return a table read whole, from Parquet, or of an annotation tool; None for other text or no file.

    Raises UserError like `open_table`, except for other text, whose problems its own reader reports.
    """
    whole_table = find_whole(path, reading)
    if whole_table:
        return as_annotated(whole_table) or whole_table
    suffix = plain_suffix(path)
    if not path.is_file() or suffix not in (".parquet", *_JSON, *_CELLS):
        return None
    if suffix == ".parquet":
        return Table(path=path, format=find_format(path, reading))
    if suffix in _CELLS and not is_headed(path):
        return None
    try:
        return as_annotated(Table(path=path, format=find_format(path, reading)))
    except UserError:
        return None


def require_columns(table: Table) -> Table:
    """Return the table. Raises UserError with its bad rows if it has no columns, since no first row is readable."""
    if not table.columns:
        problems = Problems(heading=f"{table.called} cannot be used")
        next(iter(table.rows(problems)), None)
        problems.stop_if_any()
    return table
