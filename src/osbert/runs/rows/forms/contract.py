"""The contract of an output form of rows with results: the form "csv" is the one RowForm in csv.py.

The text of rows is appended to a part, window by window, so that a stopped command resumes after its last window.
`finish` writes the output from the whole part. In most forms the part is the output already.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from osbert.files import link_or_copy

if TYPE_CHECKING:
    from osbert.reading.table import Row, Table
    from osbert.tasks import Prediction, Task


class RowResult(ABC):
    """What a verb has computed for a row.

    `prediction`: of a task, None for other verbs and where a row holds nothing to predict. `withheld`: how many answers
    it lacks because they were not probable enough (--abstain).
    """

    prediction: Prediction | None = None
    withheld: int = 0

    @abstractmethod
    def cells(self) -> Mapping[str, Any]:
        """Return the cells of a table's row, by heading: the same headings for every row, "" for what is not there."""

    @abstractmethod
    def fields(self) -> Mapping[str, Any]:
        """Return the fields of a JSON object, which may be nested."""


@dataclass(frozen=True, kw_only=True)
class ValueResult(RowResult):
    """A result of values by heading, None where there is none. `nested`: further fields of JSON objects alone."""

    values: Mapping[str, Any]
    nested: Mapping[str, Any] = field(default_factory=dict)

    def cells(self) -> Mapping[str, Any]:
        return {name: "" if value is None else value for name, value in self.values.items()}

    def fields(self) -> Mapping[str, Any]:
        return {**self.values, **self.nested}


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """What an output is of: the rows of the file `file`, with their `columns`, and the results of a verb.

    `table`: the source of the rows, if it is a table. `lines`: whether JSON lines suit the rows better than cells.
    `headings`: those of the cells of a result. `name_row`: returns the id of a row, None where rows have none.
    `task`: the task whose predictions are written, None for results of other verbs.
    `bare`: whether the output is standard output, where nothing of the input's form stands before the first row.
    `on_terminal`: whether people read it on a terminal, where a line end in a cell would look like a further row.
    `spreadsheet_safe`: whether a cell that a spreadsheet may take for a formula gets an apostrophe.
    `complete`: whether an annotation tool's records hold the whole result, so that it needs no fields of its own.
    """

    file: Path
    columns: Sequence[str]
    headings: Sequence[str]
    table: Table | None = None
    lines: bool = False
    name_row: Callable[[Row], str] | None = None
    task: Task | None = None
    bare: bool = False
    on_terminal: bool = False
    spreadsheet_safe: bool = False
    complete: bool = True


class RowForm:
    """Base class of output forms. Subclasses implement `row` and override other methods as needed."""

    endings: ClassVar[tuple[str, ...]] = ()
    """Endings that mean this form besides its own name."""
    keyed: ClassVar[bool] = False
    """Whether rows are written by their ids, each of which must be one row's alone."""
    fixed_columns: ClassVar[bool] = False
    """Whether fields that appear after the file's first rows get no column."""
    guards_formulas: ClassVar[bool] = False
    """Whether it can guard cells that a spreadsheet may take for formulas (--spreadsheet-safe)."""
    longest_cell: ClassVar[int] = 0
    """Most characters of a cell; 0 if there is no limit."""
    has_columns: ClassVar[bool] = True
    """Whether it holds more of a result than its value."""
    is_text: ClassVar[bool] = True
    """Whether the part is the output, which can then go to a stream as it grows."""
    drops_nonfinite: bool = False
    """Whether NaN and infinity in the input's columns become null, because JSON has no such numbers."""

    def __init__(self, layout: RowLayout) -> None:
        self.layout = layout

    @classmethod
    def suits(cls, layout: RowLayout, *, alike: bool) -> bool:
        """Return whether rows can be written so. Of two forms with one ending, that which has this method wins.

        `alike`: whether the output has the input's ending, or none, so that the input's own form is meant.
        """
        return True

    def begin(self) -> str:
        """Return what stands before the first row."""
        return ""

    def row(self, row: Row, result: RowResult, number: int) -> str:
        """Return the text of a row with its result, with its line break; `number`: its index among the rows written."""
        raise NotImplementedError

    def end(self, rows: int) -> str:
        """Return what stands behind the last of so many rows."""
        return ""

    def finish(self, part: Path, out: Path) -> None:
        """Write the output `out`, a file that does not exist, from the whole part."""
        link_or_copy(part, out)


class CellForm(RowForm):
    """Base class of forms with a line of cells for each row, below a line of headings. Subclasses implement `line`."""

    fixed_columns = True

    @property
    def names(self) -> list[str]:
        """The headings: the columns of the input, then those of the results under names that are free."""
        return [*self.layout.columns, *free_names(self.layout.headings, self.layout.columns)]

    def line(self, cells: Sequence[object]) -> str:
        """Return the text of a line of cells, with its line break."""
        raise NotImplementedError

    def begin(self) -> str:
        return self.line(self.names)

    def row(self, row: Row, result: RowResult, number: int) -> str:
        values = (row.values.get(name, "") for name in self.layout.columns)
        return self.line([*values, *result.cells().values()])


class WholeForm(RowForm):
    """Base class of forms that are written when all rows are known: a row of the part is a line of JSON."""

    is_text = False

    def row(self, row: Row, result: RowResult, number: int) -> str:
        cells = {name: None if cell == "" else cell for name, cell in result.cells().items()}
        line = as_json([self.row_values(row), cells]) + "\n"
        return line.encode("utf-8", "replace").decode()  # these forms hold no half of a surrogate pair

    def row_values(self, row: Row) -> Mapping[str, Any]:
        """Return the values of a row that the part holds."""
        return dict(row.source or row.values)


def read_part(part: Path) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the values of each row in the part of a WholeForm, and the cells of its result."""
    with part.open(encoding="utf-8") as lines:
        for line in lines:
            values, cells = json.loads(line)
            yield values, cells


def as_json(value: Any) -> str:
    """Return a value as JSON, in which the user's own NaN and infinity become null: JSON has no such numbers."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def free_names(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return the names, with a number behind each that the table has already.

    >>> free_names(["prediction", "truncated"], ["text", "truncated"])
    ['prediction', 'truncated 2']
    """
    free = []
    for name in names:
        number, wanted = 2, name
        while wanted in taken:
            wanted, number = f"{name} {number}", number + 1
        free.append(wanted)
    return free
