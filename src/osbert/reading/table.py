"""Opens tables of users: detects the form of a file."""

from __future__ import annotations

from pathlib import Path

from osbert.errors import Problems, UserError
from osbert.reading.annotated import as_annotated, find_whole, is_headed
from osbert.reading.form import TableReading, find_format, plain_suffix
from osbert.reading.rows import CellStyle, Origin, Row, Table, row_of

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
