"""Excel workbooks: a sheet of rows below a header; texts stay texts, so that no formula runs. Needs openpyxl.

The part holds a row a line as JSON. The columns are known when it is whole; then the workbook is written from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.runs.rows.forms.contract import RowLayout, WholeForm, as_json, free_names, read_part

ROWS = 2**20 - 1
"""Most rows of a sheet below its header; further ones go to further sheets."""
LONGEST = 2**15 - 1
"""Most characters of a cell."""
LARGEST = 2**53
"""The largest integer that a cell holds exactly."""
_ESCAPED = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
"""Characters that XML does not hold, and what a workbook would take for one: it holds them as _x0008_."""


class WorkbookTable(WholeForm):
    """A workbook with the cells of the rows and of their results."""

    drops_nonfinite = True
    longest_cell = LONGEST

    def __init__(self, layout: RowLayout) -> None:
        """Raise UserError if openpyxl is not installed."""
        super().__init__(layout)
        try:
            import openpyxl
        except ImportError as error:
            raise UserError(
                f'{layout.file}: writing .xlsx needs openpyxl: pip install "osbert[xlsx]", or write .csv.',
                code="missing-library",
            ) from error
        self.library: Any = openpyxl

    def finish(self, part: Path, out: Path) -> None:
        columns = dict.fromkeys(self.layout.columns)
        for values, _ in read_part(part):
            columns |= dict.fromkeys(values)
        header = [*columns, *free_names(self.layout.headings, columns)]
        book = self.library.Workbook(write_only=True)
        sheet = self._add_sheet(book, "rows", header)
        for number, (values, cells) in enumerate(read_part(part)):
            if number and number % ROWS == 0:
                sheet = self._add_sheet(book, f"rows {number // ROWS + 1}", header)
            sheet.append(self._cells(sheet, [*map(values.get, columns), *map(cells.get, self.layout.headings)]))
        with out.open("wb") as file:
            book.save(file)

    def _add_sheet(self, book: Any, title: str, header: list[str]) -> Any:
        sheet = book.create_sheet(title)
        sheet.append(self._cells(sheet, header))
        return sheet

    def _cells(self, sheet: Any, values: list[Any]) -> Iterator[Any]:
        for value in values:
            cell = self.library.cell.WriteOnlyCell(sheet, value=sheet_value(value))
            if isinstance(cell.value, str):
                cell.data_type = "s"  # openpyxl takes a text that begins with = for a formula
            yield cell


def sheet_value(value: Any) -> Any:
    r"""Return what a cell holds of a JSON value: a number, a boolean or a text, in which objects are JSON.

    >>> sheet_value("a\x08b"), sheet_value({"a": 1}), sheet_value(2**60), sheet_value(0.5), sheet_value(None)
    ('a_x0008_b', '{"a": 1}', '1152921504606846976', 0.5, None)
    """
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) <= LARGEST):
        return value
    text = value if isinstance(value, str) else as_json(value)
    text = _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
