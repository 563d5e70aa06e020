"""CSV: the columns as they were, then the cells of the result."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from osbert.reading.table import CellStyle
from osbert.runs.rows.forms.contract import CellForm, RowLayout
from osbert.terminal import one_line

FORMULA_SIGNS = ("=", "+", "-", "@")
"""What a spreadsheet takes for the start of a formula; in some languages the full-width forms of these too."""
_SKIPPED = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2060\ufeff]*")
"""Blanks, controls and invisible characters, which a spreadsheet may skip before a formula."""
_BREAKS = ("\t", "\r", "\n")
ROW_END = "\r\n"
"""What csv.writer ends rows with: before Python 3.13 it quotes a line end in a cell only if this holds that character.
"""


class CsvTable(CellForm):
    """Cells with the delimiter, line ends and start of the file that was read, if that has the same ending."""

    guards_formulas = True
    suffix: ClassVar[str] = ".csv"

    def __init__(self, layout: RowLayout) -> None:
        super().__init__(layout)
        table = layout.table
        usual = CellStyle(delimiter="\t" if self.suffix == ".tsv" else ",")
        style = table.style(self.suffix) if table else usual
        self.style = replace(style, start="") if layout.bare else style

    def begin(self) -> str:
        return self.style.start + super().begin()

    def line(self, cells: Sequence[object]) -> str:
        line = io.StringIO()
        written: Iterable[object] = map(guard_cell, cells) if self.layout.spreadsheet_safe else cells
        if self.layout.on_terminal:  # where nobody sees the quotes around a cell that forges rows
            written = (one_line(cell) if isinstance(cell, str) else cell for cell in written)
        csv.writer(line, delimiter=self.style.delimiter, lineterminator=ROW_END).writerow(written)
        return line.getvalue().removesuffix(ROW_END) + self.style.newline


def guard_cell(cell: object) -> object:
    """Return a cell with an apostrophe before it if a spreadsheet may evaluate it: it starts so and is no number.

    >>> guard_cell("=1+1"), guard_cell(" \uff1d1+1"), guard_cell("-1"), guard_cell("a")
    ("'=1+1", "' \uff1d1+1", '-1', 'a')
    """
    text = str(cell)
    if text.startswith(_BREAKS):
        return f"'{text}"
    first = text[_SKIPPED.match(text).end() :][:1]  # type: ignore[union-attr] # it matches "", too
    if unicodedata.normalize("NFKC", first)[:1] not in FORMULA_SIGNS:
        return cell
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return cell
