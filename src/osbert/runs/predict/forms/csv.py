"""CSV: the columns as they were, then the cells of the prediction."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from osbert.reading.table import CellStyle
from osbert.runs.predict.forms.contract import PredictedRow, RowForm, RowLayout, free_names

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Starts of cells that a spreadsheet evaluates as a formula, or skips before one."""
ROW_END = "\r\n"
"""What csv.writer ends rows with: before Python 3.13 it quotes a line end in a cell only if this holds that character.
"""


class CsvTable(RowForm):
    """Cells with the delimiter, line ends and start of the file that was read, if that has the same ending."""

    has_cells = True
    suffix: ClassVar[str] = ".csv"

    def __init__(self, layout: RowLayout) -> None:
        """Prepare for one output."""
        super().__init__(layout)
        table = layout.inputs.table
        usual = CellStyle(delimiter="\t" if self.suffix == ".tsv" else ",")
        style = table.style(self.suffix) if table else usual
        self.style = replace(style, start="") if layout.bare else style

    def begin(self) -> str:
        """Return the header: the columns of the input, then those of the predictions under names that are free."""
        columns = self.layout.inputs.columns
        said = list(self.layout.options.cells(self.layout.task, None))
        return self.style.start + self._line([*columns, *free_names(said, columns)])

    def row(self, said: PredictedRow) -> str:
        """Return one row."""
        cells = self.layout.options.cells(self.layout.task, said.prediction, said.withheld)
        return self._line([*(said.row.values.get(name, "") for name in self.layout.inputs.columns), *cells.values()])

    def _line(self, cells: Sequence[object]) -> str:
        line = io.StringIO()
        safe: Iterable[object] = map(guarded, cells) if self.layout.options.spreadsheet_safe else cells
        csv.writer(line, delimiter=self.style.delimiter, lineterminator=ROW_END).writerow(safe)
        return line.getvalue().removesuffix(ROW_END) + self.style.newline


def guarded(cell: object) -> object:
    """Return a cell with an apostrophe before it if a spreadsheet may evaluate it: it starts so and is no number.

    >>> guarded("=1+1"), guarded("-1"), guarded("a")
    ("'=1+1", '-1', 'a')
    """
    text = str(cell)
    if not text.startswith(FORMULA_STARTS):
        return cell
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return f"'{text}" if text[0].isspace() else cell
