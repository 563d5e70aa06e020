"""Excel workbooks (.xlsx): the first sheet by rows; needs openpyxl, which comes with an extra."""

from __future__ import annotations

import re
import warnings
import zipfile
from datetime import date, datetime, time
from itertools import islice
from typing import Any, ClassVar

from osbert.errors import UserError
from osbert.reading.compression import UnpackingLimit
from osbert.reading.data_file import DataFile
from osbert.reading.encodings import LONGEST, foreign
from osbert.reading.form import TableReading, read_header
from osbert.reading.table import Entry, FileForm

_MEMBERS = 10_000
"""Most files in a workbook, which is a ZIP archive."""
_ROWS = 1 << 20
"""Most rows of a sheet, in Excel too."""
_ESCAPED = re.compile("_x((?![Dd][89A-Fa-f])[0-9A-Fa-f]{4})_")
"""A character as workbooks write it; halves of surrogate pairs stay as they are."""
_PROLOGUE = 1 << 16
_LOOKED = 1000
"""Number of rows from which a header is detected."""


class Workbook(FileForm):
    """An .xlsx file. The value of a formula is the one that Excel saved; empty rows are skipped."""

    title: ClassVar[str] = "Excel workbook, first sheet"
    unit: ClassVar[str] = "row"
    suffixes = (".xlsx",)

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a file is called .xlsx and is a ZIP archive with the parts of a workbook."""
        if file.path.suffix.lower() != ".xlsx":
            return False
        with file.open_raw() as raw:
            return "Excel workbook" in foreign(file.beginning[:LONGEST], raw)

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the rows of the first sheet. Raises UserError if openpyxl is missing or if the file is unusable."""
        path = file.path
        try:
            import openpyxl
        except ImportError as error:
            raise UserError(
                f'{path}: workbooks need openpyxl: pip install "osbert[xlsx]", or save it as CSV (UTF-8).',
                code="missing-library",
            ) from error
        try:
            _require_bounded(file)
            with file.open_raw() as raw, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what it leaves out, such as rules for input
                book = openpyxl.load_workbook(raw, read_only=True, data_only=True, keep_links=False)
                limit = UnpackingLimit(str(path), path.stat().st_size)
                rows = _cells(book.worksheets[0], limit)
                book.close()
        except UserError:
            raise
        except Exception as error:  # its readers of XML raise what they meet
            raise UserError(
                f"{path}: not a workbook that can be read ({type(error).__name__}: {error}). Save it as CSV (UTF-8).",
                code="damaged-file",
            ) from error
        limit.add_values(len(rows) * max((len(cells) for _, cells in rows), default=0))
        if not rows:
            raise UserError(f"{path}: its first sheet is empty.", code="no-data")
        sample = [["" if cell is None else str(cell) for cell in cells] for _, cells in islice(rows, _LOOKED)]
        width = max(len(cells) for _, cells in rows)
        header, columns = read_header(path, sample, reading, width=width)
        return [
            (number, dict(zip(columns, [*cells, *[None] * (len(columns) - len(cells))])))
            for number, cells in rows[header:]
        ]


def _require_bounded(file: DataFile) -> None:
    """Raise UserError if a workbook unpacks to too much, or declares XML entities (billion laughs)."""
    with file.open_raw() as raw, zipfile.ZipFile(raw) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > file.most_unpacked or len(members) > _MEMBERS:
            raise file.too_large()
        for member in members:
            if not member.filename.endswith((".xml", ".rels")):
                continue
            with archive.open(member) as content:
                start = content.read(_PROLOGUE)
            if b"<!DOCTYPE" in start or b"<!ENTITY" in start or start[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise UserError(
                    f"{file.path}: {member.filename} declares XML entities, which no workbook needs.",
                    code="damaged-file",
                )


def _cells(sheet: Any, limit: UnpackingLimit) -> list[tuple[int, list[Any]]]:
    """Return the rows that are not empty, with their numbers. `limit` counts their cells, up to the last of each."""
    sheet.reset_dimensions()  # what a file says of its size need not be so
    rows = []
    for number, cells in enumerate(sheet.iter_rows(values_only=True), 1):
        if number > _ROWS:
            raise ValueError(f"it has more than {_ROWS:,} rows")
        limit.add_values(len(cells))
        row_cells = list(cells)
        while row_cells and row_cells[-1] in (None, ""):
            row_cells.pop()
        if row_cells:
            rows.append((number, [_plain(cell) for cell in row_cells]))
    return rows


def _plain(cell: Any) -> Any:
    """Return the value of a cell: dates and times in ISO 8601, texts with the characters that their escapes stand for.

    Workbooks write a control character as _x0008_, and an underscore that would begin such an escape as _x005F_.
    """
    if isinstance(cell, str):
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), cell)
    return cell.isoformat() if isinstance(cell, date | datetime | time) else cell
