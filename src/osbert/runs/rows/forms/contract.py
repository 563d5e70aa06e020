"""The contract of a form in which predicted rows are written: the form "csv" is the one RowForm in csv.py.

Text of rows grows in a part, window by window, so that a stopped command goes on behind its last window. `finish` makes
the output of the whole part; where the part is the output, as in most forms, it only gives it its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from osbert.reading.table import Row
from osbert.runs.contract import Notice
from osbert.runs.rows.prediction_settings import PredictionOptions
from osbert.runs.rows.unfinished import link_or_copy
from osbert.tasks import Inputs, Prediction, Task
from osbert.terminal import format_count


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """What an output is of: the rows `inputs` of the file `file`, predicted by `task`, with the columns in `options`.

    `bare`: whether it goes to standard output, where nothing of the input's form stands before the first row.
    `on_terminal`: whether people read it on a terminal, where a line end in a cell would look like a further row.
    """

    file: Path
    task: Task
    inputs: Inputs
    options: PredictionOptions
    bare: bool = False
    on_terminal: bool = False


@dataclass(frozen=True, kw_only=True)
class PredictedRow:
    """A row with its prediction, None where it holds nothing to predict; `number`: its index among the rows written.

    `withheld`: how many answers the prediction lacks because they were not probable enough (--abstain).
    """

    number: int
    row: Row
    prediction: Prediction | None
    withheld: int = 0


class RowForm:
    """Writes rows in one form. A form says `row`, and of the other methods those that do not suit it."""

    endings: ClassVar[tuple[str, ...]] = ()
    """Endings that mean this form besides its own name."""
    keyed: ClassVar[bool] = False
    """Whether rows are written by their ids (`Inputs.called`), each of which must be one row's alone."""
    has_cells: ClassVar[bool] = False
    """Whether a spreadsheet opens it and may take a cell for a formula."""
    has_columns: ClassVar[bool] = True
    """Whether --top-k and --probabilities have a place in it."""
    is_text: ClassVar[bool] = True
    """Whether the part is the output, which can then go to a stream as it grows."""
    drops_nonfinite: bool = False
    """Whether NaN and infinity in the input's columns become null, because JSON has no such numbers."""

    def __init__(self, layout: RowLayout) -> None:
        """Prepare for one output."""
        self.layout = layout

    @classmethod
    def suits(cls, inputs: Inputs, *, alike: bool) -> bool:
        """Return whether rows of a file can be written so. Of two forms with one ending, that which says this wins.

        `alike`: whether the output has the input's ending, or none, so that the input's own form is meant.
        """
        return True

    def begin(self) -> str:
        """Return what stands before the first row."""
        return ""

    def row(self, predicted_row: PredictedRow) -> str:
        """Return the text of a row, with its line break."""
        raise NotImplementedError

    def end(self, rows: int) -> str:
        """Return what stands behind the last of so many rows."""
        return ""

    def finish(self, part: Path, out: Path) -> None:
        """Write the output `out`, a file that does not exist, from the whole part."""
        link_or_copy(part, out)


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


def nonfinite_notice(lines: Mapping[str, int]) -> Notice:
    """Return the notice about columns that an output drops NaN and infinity of: each with its first line."""
    text = f"{name_first(lines, 'more column')} holds NaN or infinity, for which JSON has no number"
    return Notice(f"{text}: null in the output", warning=True)


def name_first(lines: Mapping[str, int], noun: str) -> str:
    """Return the first of several columns by name, with its first line, and how many others there are.

    >>> name_first({"weight": 3, "age": 7}, "more column")
    "'weight' (first in line 3) and 1 more column"
    """
    name, line = next(iter(lines.items()))
    more = f" and {format_count(len(lines) - 1, noun)}" if len(lines) > 1 else ""
    return f"'{name}' (first in line {line}){more}"


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
