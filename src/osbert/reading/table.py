"""One's own tables: a file is opened, and its form is found by looking."""

from __future__ import annotations

from pathlib import Path

from osbert.reading.form import TableReading, find_format
from osbert.reading.rows import CellStyle, Origin, Row, Table, row_of

__all__ = ["CellStyle", "Origin", "Row", "Table", "TableReading", "open_table", "row_of"]


def open_table(path: Path, reading: TableReading = TableReading()) -> Table:  # noqa: B008 - TableReading is frozen
    """Find the form of a file and return it as a Table; `reading` holds what the user says about it.

    Raises UserError when the file is absent, empty, or no table.
    """
    return Table(path=path, format=find_format(path, reading))
