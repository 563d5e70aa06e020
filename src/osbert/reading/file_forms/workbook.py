"""Excel workbooks (.xlsx): the first visible sheet by rows; needs openpyxl, which comes with an extra."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time
from itertools import islice
from typing import Any, ClassVar

from osbert.errors import Problems, UserError
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
_FORMULA = re.compile(rb"<(\w+:)?f[\s/>]")
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell [^<>]{0,40}?ref="([A-Z]{1,3})(\d{1,7}):[A-Z]{1,3}(\d{1,7})"')
"""The column, the first and the last row of merged cells."""
_LOOKED = 1000
"""Number of rows from which a header is detected."""


class Workbook(FileForm):
    """An .xlsx file. The value of a formula is the stored one, merged cells all have it; empty rows are skipped."""

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
        """Return the rows of the first visible sheet.

        Raises UserError if openpyxl is missing, the file is unusable, or a formula of the sheet has no stored value.
        """
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
                sheets = book.worksheets
                index = next((index for index, sheet in enumerate(sheets) if sheet.sheet_state == "visible"), 0)
                rows = _cells(sheets[index], limit)
                _fill_merged(rows, file, sheets[index], limit)
                if _holds_formulas(file):
                    formulas = openpyxl.load_workbook(raw, read_only=True, keep_links=False)
                    _require_calculated(file, sheets[index], formulas.worksheets[index])
                    formulas.close()
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
            raise UserError(f"{path}: its sheet '{sheets[index].title}' is empty.", code="no-data")
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


def _holds_formulas(file: DataFile) -> bool:
    """Return whether a sheet of a workbook has a formula."""
    return any(True for _ in _search(file, "xl/worksheets/", _FORMULA))


def _search(file: DataFile, start: str, pattern: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
    """Yield the matches in the parts of a workbook whose names begin with `start`; some may come twice."""
    with file.open_raw() as raw, zipfile.ZipFile(raw) as archive:
        for name in archive.namelist():
            if not name.startswith(start):
                continue
            with archive.open(name) as content:
                overlap = b""
                while chunk := content.read(_PROLOGUE):
                    yield from pattern.finditer(overlap + chunk)
                    overlap = chunk[-128:]


def _fill_merged(rows: list[tuple[int, list[Any]]], file: DataFile, sheet: Any, limit: UnpackingLimit) -> None:
    """Write the value of cells that are merged over several rows into each of these, but for those of a header."""
    from openpyxl.utils import column_index_from_string

    cells_by_row = dict(rows[1:])
    for match in _search(file, sheet._worksheet_path, _MERGED):
        column, first, last = column_index_from_string(match[1].decode()) - 1, int(match[2]), int(match[3])
        value = cells_by_row[first][column : column + 1] if first in cells_by_row else []
        numbers = range(first + 1, last + 1) if value else ()
        limit.add_values(len(numbers))
        for row in filter(None, map(cells_by_row.get, numbers)):
            row += [None] * (column + 1 - len(row))
            row[column : column + 1] = value


def _require_calculated(file: DataFile, stored: Any, formulas: Any) -> None:
    """Raise UserError with the cells of a sheet whose formulas were never calculated.

    `stored`, `formulas`: the sheet with the values of its formulas, and with the formulas themselves. openpyxl stores
    no value. XlsxWriter stores 0 and marks the workbook as to be calculated. An empty text is stored as a text.
    """
    with file.open_raw() as raw, zipfile.ZipFile(raw) as archive, archive.open("xl/workbook.xml") as content:
        uncalculated = b'fullCalcOnLoad="1"' in content.read(_PROLOGUE)
    unknown = (None, 0) if uncalculated else (None,)
    problems = Problems(
        heading=f"{file.path}: formulas of sheet '{stored.title}' were never calculated. Open and save the file in a "
        "spreadsheet program. Or, if they are texts that begin with =, write them as texts"
    )
    formulas.reset_dimensions()
    for values, cells in zip(stored.iter_rows(), formulas.iter_rows()):
        for value, cell in zip(values, cells):
            if cell.data_type == "f" and value.data_type == "n" and value.value in unknown:
                formula = str(getattr(cell.value, "text", cell.value))
                problems.add(f"{cell.coordinate}: {formula[:40]}", code="unusable-row")
    problems.stop_if_any()


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
