"""Numbers as labels, with a decimal point or a decimal comma, which is detected from all cells of the column."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, cast

from osbert.errors import Problems
from osbert.reading.columns import TextColumns
from osbert.reading.splits import USUAL
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Record, Source, Task
from osbert.tasks.tables import DataSetLayout
from osbert.tasks.tables.texts import TextSource, TextTask

LARGEST = 1e100
"""Largest absolute value of a label. The sum of squares of many such numbers is finite."""
SMALLEST = 1e-100
"""Smallest difference of labels. Its square is above 0."""
DecimalMark = Literal["auto", "point", "comma"]

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")
_GROUPED_BY_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+")
"""A number that may as well have commas, or points, between its thousands."""
_POINTS_BEFORE_COMMA = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?")
"""A number with points between its thousands, where commas are decimal marks."""


class NumberTask(Protocol):
    """A task on tables with numbers as labels."""

    decimal: DecimalMark


class NumberSource(TextSource):
    """Reads tables with a text, or a pair of texts, and a number."""

    def findings(self) -> list[str]:
        table = self.open(self.file("train"))
        column = self.columns(table, labelled=True).label
        commas = [f"the numbers in '{column}' have decimal commas"] if self._has_commas(table, column) else []
        return [*super().findings(), *commas]

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data, whose decimal mark is detected again; see TextSource."""
        return super().switch_data(data, {"decimal": "auto"} | dict(given))

    def _record(self, row: Row, columns: TextColumns, table: Table) -> Record:
        written = cell = row.values.get(columns.label, "").strip()
        if self._decimal == "comma" and _POINTS_BEFORE_COMMA.fullmatch(cell):
            cell = cell.replace(".", "")
        if "," in cell and self._has_commas(table, columns.label):
            if not _DECIMAL_COMMA.fullmatch(cell):
                raise ValueError(f"the label {cell!r} is not a number with a decimal comma. Write it as 1234,5")
            cell = cell.replace(",", ".")
        elif "." in cell and self._decimal == "comma":
            raise ValueError(f"the label {cell!r} has a point, but --decimal is comma. Write it as 1234,5")
        elif (
            self._decimal == "auto"
            and _GROUPED_BY_POINTS.fullmatch(cell)
            and not row.source
            and self._fact(may_have_grouping_points, table, columns.label)
        ):
            raise ValueError(f"{cell!r} may have a point between thousands. Leave it out, or give --decimal point")
        if cell != written:
            row = dataclasses.replace(row, values={**row.values, columns.label: cell})
        return super()._record(row, columns, table)

    @property
    def _decimal(self) -> DecimalMark:
        return cast(NumberTask, self.task).decimal

    def _has_commas(self, table: Table, column: str) -> bool:
        """Return whether the numbers of a column have decimal commas. In doubt its cells are read once."""
        if self._decimal != "auto":
            return self._decimal == "comma"
        return self._fact(have_decimal_commas, table, column)

    def _fact(self, holds: Callable[[Iterable[str]], bool], table: Table, column: str) -> bool:
        """Return whether something holds of the cells of a column, which are read for it once."""
        key = (holds.__name__, table.called, column)
        if key not in self._facts:
            rows = table.rows(Problems(heading="", limit=0))
            self._facts[key] = holds(row.values.get(column, "").strip() for row in rows)
        return bool(self._facts[key])


@dataclass(frozen=True, kw_only=True)
class ScoredPairs(TextTask):
    """Pairs of texts with a score of similarity: the user's own table, or a folder with the files of STS-B."""

    values = "numbers"
    numbers: ClassVar[bool] = True
    reader: ClassVar[type[Source]] = NumberSource
    layout: ClassVar[DataSetLayout] = DataSetLayout(
        columns=(
            TextColumns(text="sentence1", pair="sentence2", label="score"),
            TextColumns(text="sentence1", pair="sentence2", label="label"),
            TextColumns(text="column 6", pair="column 7", label="column 5"),
        ),
        unlabelled=("-1", "-1.0"),
        bare_quotes=True,
        instead={split: f"sts-{split}" for split in USUAL},
        surplus=2,
    )

    decimal: DecimalMark = "auto"

    def value(self, text: str) -> float:
        return parse_number(text)


def have_decimal_commas(cells: Iterable[str]) -> bool:
    """Return whether all fractions in some cells have a decimal comma.

    Commas that may all as well separate thousands, and cells with points, are doubtful.

    >>> have_decimal_commas(["7,6", "8", "-0,25"]), have_decimal_commas(["7,6", "8.1"]), have_decimal_commas(["1,250"])
    (True, False, False)
    """
    found = [cell for cell in cells if "," in cell or "." in cell]
    return all(map(_DECIMAL_COMMA.fullmatch, found)) and not all(map(_GROUPED.fullmatch, found))


def may_have_grouping_points(cells: Iterable[str]) -> bool:
    """Return whether all points in some cells may separate thousands, beside hundreds without a point.

    >>> may_have_grouping_points(["950", "1.250"]), may_have_grouping_points(["2", "1.333"])
    (True, False)
    """
    cells = [*cells]
    pointed = [cell for cell in cells if "." in cell]
    hundreds = any(re.fullmatch(r"[1-9]\d\d", cell) for cell in cells)
    return hundreds and bool(pointed) and all(map(_GROUPED_BY_POINTS.fullmatch, pointed))


def parse_number(cell: str) -> float:
    """Return the number in a cell, with a decimal point. Raises ValueError with the reason if there is none."""
    try:
        number = float("" if "_" in cell else cell)  # Python reads 1_0 as 10
    except ValueError:
        advice = "Write one, or remove the row"
        if "," in cell:
            advice += ". If commas are decimal marks, give --decimal comma"
        raise ValueError(f"the label {cell!r} is not a number. {advice}") from None
    if not math.isfinite(number):
        raise ValueError(f"the label {cell!r} is not a finite number. Write one, or remove the row")
    if abs(number) > LARGEST:
        raise ValueError(
            f"the label {cell!r} is beyond {LARGEST:g}: squared errors would be infinite. Write all numbers in a "
            "larger unit, or as logarithms"
        )
    return number
