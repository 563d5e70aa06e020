"""The tables of users: a file is opened as rows, whatever its form, with the line on which each row begins."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from osbert import components
from osbert.errors import Problems, UserError, not_json
from osbert.guarded import parse_json
from osbert.reading.data_file import DataFile, in_parts
from osbert.reading.delimited import parse
from osbert.reading.form import (
    JSON_ARRAY,
    JSON_SUFFIXES,
    Format,
    TableReading,
    decoding_error,
    find_format,
    is_rule,
    open_text,
    plain_suffix,
    without_hint,
)
from osbert.reading.parquet import read_rows
from osbert.reading.record_forms.contract import RecordForm
from osbert.terminal import format_count, one_line

_LOOKED = 1000
"""Number of records that the form and the columns are detected from."""
_CELLS = (".csv", ".tsv", ".tab")


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

    def describe_nested(self, names: Iterable[str]) -> str:
        """Return what is wrong if one of these columns has a list or an object in place of a text, "" if none has."""
        for name in names:
            if name in self.nested:
                problem = f"'{name}' is a list or an object ({self.values[name][:40]}). Write a text"
                all_nested = len(self.nested) == len(self.values)
                return problem + ", a row a line (pandas: orient='records', lines=True)" * all_nested
        return ""


@dataclass(frozen=True, kw_only=True)
class CellStyle:
    """The style of a delimited file to write. `start`: the text before its first row."""

    delimiter: str
    newline: str = "\n"
    start: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file with its detected form."""

    file: DataFile
    format: Format

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self.file.path

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
            for number, values in enumerate(read_rows(self.file), 1):
                if isinstance(values, ValueError):
                    problems.add(f"{self.place(number)}: {one_line(str(values))}.", code="unusable-row")
                else:
                    yield replace(row_of(values, number), source={}, record=values)
            return
        read = {"delimited": self._read_delimited, "jsonl": self._read_objects, "lines": self._read_lines}[
            self.format.kind
        ]
        try:
            with open_text(self.file, self.format.encoding) as lines:
                yield from read(lines, problems)
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
        start, header = next(((line, cells) for line, cells in rows if cells), (0, [])) if form.header else (0, [])
        names = [cell.strip(" \ufeff") for cell in header]
        key = next((index for index, name in enumerate(names) if name), 0)
        for line, cells in rows:
            if not cells:
                if not (form.hint and line == 1):
                    yield Row(line=line, values={form.columns[0]: ""}, blank=True)
            elif is_rule(cells):
                if line != start + 1:
                    problems.add(
                        f"{self.path}, line {line}: a rule, as below a header. Remove this line, and the header of a "
                        "second table.",
                        code="unusable-row",
                    )
            elif (
                1 < len(cells) == len(names)
                and names[key] in cells[key]  # quicker than the comparison of all, which few rows need
                and [cell.strip(" \ufeff") for cell in cells] == names
            ):
                problems.add(f"{self.path}, line {line}: the header again. Remove this line.", code="unusable-row")
            elif len(cells) in (len(form.columns), len(form.columns) + form.surplus):
                yield Row(line=line, values=dict(zip(form.columns, cells)))
            else:
                remedy = "Is the line incomplete, or does a text contain a line end?"
                if form.quotes and len(cells) > len(form.columns):
                    remedy = "Does a text contain the delimiter? Put that text in double quotes."
                if len(cells) == len(form.columns) + 1:
                    remedy += " Or is it a row's name, as R writes it? Leave it out (row.names = FALSE)."
                problems.add(
                    f"{self.path}, line {line}: {format_count(len(cells), 'cell')}, but there are "
                    f"{len(form.columns)} columns ({', '.join(form.columns)}). {remedy}",
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
                    f"{self.path}, line {number}: a carriage return at character {text.index(chr(13)) + 1}. "
                    "If it ends a line, convert the file: tr '\\r' '\\n'. Otherwise replace it with a space.",
                    code="unusable-row",
                )
            else:
                yield Row(line=number, values={"text": text}, blank=not text.strip())


Entry: TypeAlias = tuple[int, Mapping[str, Any] | ValueError]
"""The number of a record, and its row or the error that prevents one."""
FOLDER = "/"
"""The ending of folders in `FileForm.suffixes`."""


class FileForm:
    """A form of files that are read whole, or of folders with one data set; a file of file_forms/ has one."""

    title: ClassVar[str]
    """Its name in messages."""
    unit: ClassVar[str] = "record"
    """The unit that its records are numbered by."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """The endings of its files, without those of compression: "" for files that have none, FOLDER for folders. Only
    files and folders with one of these are checked; () for all."""

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a file with one of its endings is of this form."""
        raise NotImplementedError

    def load(self, file: DataFile, reading: TableReading) -> Sequence[Entry]:
        """Return the records of a file, as rows or, if a record form reads them further, unchanged.

        Raises UserError if the file is damaged, too large, or not of this form.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeTable(Table):
    """A file that is read whole, with its records."""

    entries: Sequence[Entry]

    def rows(self, problems: Problems) -> Iterator[Row]:
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
        return self.inner.origin

    @property
    def called(self) -> str:
        return self.inner.called

    def rows(self, problems: Problems) -> Iterator[Row]:
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


Origin: TypeAlias = Path | Table
"""The source of rows: a file, or an open table such as rows in memory."""


def row_of(value: Mapping[str, Any], line: int) -> Row:
    """Return the row of a JSON object or a similar mapping. NaN, which pandas writes, becomes null."""
    nonfinite = frozenset(name for name, cell in value.items() if _holds_nonfinite(cell))
    nan_names = [name for name in nonfinite if isinstance(value[name], float) and math.isnan(value[name])]
    value = {**value, **dict.fromkeys(nan_names)}
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


def _text(value: Any) -> str:
    """Return a JSON or Parquet value as the text a CSV cell would hold; null is an empty cell."""
    if value is None:
        return ""
    if isinstance(value, bytes):  # a binary column of Parquet, numpy's text of one byte a character
        return value.decode("utf-8", "replace")
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value if isinstance(value, str) else str(value)  # a date or a decimal, which JSON would put in quotes


def open_table(origin: Path | DataFile, reading: TableReading = TableReading()) -> Table:  # noqa: B008 - it is frozen
    """Return a file as a Table of the detected form. `reading`: what the user specifies about it.

    Raises UserError if the file does not exist, is empty, or is no table.
    """
    file = origin if isinstance(origin, DataFile) else DataFile(origin)
    table = _open_whole(file, reading) or Table(file=file, format=find_format(file, reading))
    return as_annotated(table) or table


def open_records(file: DataFile, reading: TableReading) -> Table | None:
    """Return a table read whole, from Parquet, or of an annotation tool; None for other text or no file.

    Raises UserError like `open_table`, except for other text, whose problems its own reader reports.
    """
    whole_table = _open_whole(file, reading)
    if whole_table:
        return as_annotated(whole_table) or whole_table
    suffix = plain_suffix(file.path)
    if not (file.path.is_file() or in_parts(file.path)) or suffix not in (".parquet", *JSON_SUFFIXES, *_CELLS):
        return None
    if suffix == ".parquet":
        return Table(file=file, format=find_format(file, reading))
    first_line = file.first_text.split("\n", 1)[0]
    if suffix in _CELLS and not any(form.heading and form.heading in first_line for form in _forms(RecordForm)):
        return None
    try:
        return as_annotated(Table(file=file, format=find_format(file, reading)))
    except UserError:
        return None


def is_whole(path: Path) -> bool:
    """Return whether a file, or a folder, is read whole."""
    return _file_form(DataFile(path)) is not None


def _open_whole(file: DataFile, reading: TableReading) -> WholeTable | None:
    """Return a file, or a folder, that is read whole; None if no file form claims it."""
    form = _file_form(file)
    if form is None:
        return None
    entries = form().load(file, reading)
    columns = _columns(value for _, value in entries if isinstance(value, Mapping))
    return WholeTable(
        file=file,
        format=Format(kind="records", encoding="", columns=columns, title=form.title, unit=form.unit),
        entries=entries,
    )


def _file_form(file: DataFile) -> type[FileForm] | None:
    if not file.path.exists():
        return None
    suffix = FOLDER if file.path.is_dir() else plain_suffix(file.path)
    return next(
        (form for form in _forms(FileForm) if suffix in (form.suffixes or (suffix,)) and form.claims(file)), None
    )


@cache
def _forms(base: type) -> tuple[Any, ...]:
    """Return the forms of files that are read whole, or those of annotation tools' records."""
    folder = "reading.file_forms" if base is FileForm else "reading.record_forms"
    return tuple(components.find(folder, name, base=base) for name in components.names(folder))


def as_annotated(table: Table) -> AnnotatedTable | None:
    """Return a table read as that of an annotation tool; None if no record form claims one of its first records."""
    kind = table.format.kind
    if kind == "delimited":
        if not any(form.heading in table.columns for form in _forms(RecordForm)):
            return None
    elif not table.format.objects:
        return None
    sample = [_record(row) for row in islice(table.rows(Problems(heading="", limit=0)), _LOOKED)]
    form = next((form for form in _forms(RecordForm) if any(map(form.claims, sample))), None)
    if form is None:
        return None
    record_form = form(sample)
    rows = []
    for record in sample:
        with suppress(ValueError):  # the rows report every such record with its number
            rows += list(record_form.read(record))
    container = {"delimited": "CSV", "jsonl": "JSON lines"}.get(kind, table.format.title or "rows in memory")
    in_array = form.title.endswith("JSON") and container == JSON_ARRAY
    title = form.title if in_array else f"{form.title}, {container}"
    table_format = replace(table.format, kind="records", columns=_columns(rows), title=title)
    return AnnotatedTable(file=table.file, format=table_format, inner=table, form=record_form)


def require_columns(table: Table) -> Table:
    """Return the table. Raises UserError with its bad rows if it has no columns, since no first row is readable."""
    if not table.columns:
        problems = Problems(heading=f"{table.called} cannot be used")
        next(iter(table.rows(problems)), None)
        problems.stop_if_any()
    return table


def _record(row: Row) -> Mapping[str, Any]:
    return row.source or row.record or row.values


def _columns(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple({name: None for row in rows for name in row})
