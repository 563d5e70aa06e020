"""The forms in which predictions are written: JSON lines, one JSON object, CSV and TSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TextIO

from osbert.errors import UserError
from osbert.files import is_stream, writing_output
from osbert.reading.table import CellStyle, Row
from osbert.tasks import Inputs, Prediction, Task

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Starts of cells that a spreadsheet evaluates as a formula, or skips before one."""


@dataclass(frozen=True, kw_only=True)
class PredictionOutput:
    """Where predictions are written, and how: to `path`, whose suffix decides the form, or to `stream`.

    `spreadsheet_safe`: an apostrophe before each cell of a CSV or TSV that a spreadsheet would take for a formula.
    `lines`: without a path, JSON lines whatever the input's form.
    """

    path: Path | None = None
    stream: TextIO | None = None
    spreadsheet_safe: bool = False
    lines: bool = False

    def is_official(self, inputs: Inputs) -> bool:
        """Return whether predictions are written as one JSON object, by the rows' ids."""
        return self.path is not None and self.path.suffix.lower() == ".json" and bool(inputs.key)

    @contextmanager
    def opened(self, claimed: Path | None) -> Iterator[TextIO]:
        """Give the stream, or a file that gets its name, `claimed`, when it is complete."""
        if claimed is None:
            assert self.stream is not None
            yield self.stream
            return
        # A lone half of a pair, which JSON can hold, is written as JSON spells it.
        with (
            writing_output(claimed) as aside,
            aside.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream,
        ):
            yield stream

    def writer(self, stream: TextIO, task: Task, inputs: Inputs) -> Writer:
        """Return the writer for the output's name; on standard output and devices the form is the input's."""
        out = self.path
        named = out is not None and (out.suffix or not is_stream(out))
        suffix = out.suffix.lower() if out and named else ".jsonl" if inputs.lines or self.lines else ".csv"
        if self.spreadsheet_safe and suffix not in (".csv", ".tsv"):
            raise UserError(
                "--spreadsheet-safe is for .csv and .tsv: a spreadsheet takes no JSON for a formula.",
                code="options-exclude-each-other",
            )
        if self.is_official(inputs):
            return ObjectWriter(stream, inputs)
        if suffix in (".jsonl", ".ndjson", ".json"):
            return LineWriter(stream, inputs)
        if suffix in (".csv", ".tsv"):
            style = (
                inputs.table.style(suffix) if inputs.table else CellStyle(delimiter="\t" if suffix == ".tsv" else ",")
            )
            style = style if out else replace(style, start="")
            return CellWriter(stream, task, inputs, style=style, spreadsheet_safe=self.spreadsheet_safe)
        raise UserError(f"{out}: predictions are written as .csv, .tsv or .jsonl.", code="unknown-output-format")


class Writer(Protocol):
    """Writes rows with their predictions."""

    def write(self, row: Row, prediction: Prediction | None) -> None:
        """Write one row."""
        ...

    def finish(self) -> None:
        """Write what belongs behind the last row."""
        ...


class LineWriter:
    """JSON lines: the object as it was, with the fields of the prediction ("prediction" and more)."""

    def __init__(self, stream: TextIO, inputs: Inputs) -> None:
        """Write to `stream`."""
        self.stream = stream
        self.columns = inputs.columns

    def write(self, row: Row, prediction: Prediction | None) -> None:
        """Write one row as an object."""
        said = (prediction or Prediction(value=None)).as_dict()
        line = {**(row.source or row.values), **dict(zip(_free(list(said), self.columns), said.values()))}
        self.stream.write(_json(line) + "\n")

    def finish(self) -> None:
        """Write nothing more."""


class ObjectWriter:
    """One JSON object, {key: prediction}, as the scorers of some data sets (SQuAD's) read it."""

    def __init__(self, stream: TextIO, inputs: Inputs) -> None:
        """Write to `stream`; `inputs` say what a row is called."""
        self.stream = stream
        self.inputs = inputs
        self.before = "{"

    def write(self, row: Row, prediction: Prediction | None) -> None:
        """Write one entry."""
        value = "" if prediction is None else prediction.value
        self.stream.write(f"{self.before}{_json(self.inputs.called(row))}: {_json(value)}")
        self.before = ",\n"

    def finish(self) -> None:
        """Close the object."""
        self.stream.write("}\n" if self.before != "{" else "{}\n")


class CellWriter:
    """CSV or TSV: the columns as they were, then the cells of the prediction."""

    def __init__(
        self, stream: TextIO, task: Task, inputs: Inputs, *, style: CellStyle, spreadsheet_safe: bool = False
    ) -> None:
        """Write the header to `stream`."""
        self.task = task
        self.columns = inputs.columns
        stream.write(style.start)
        cells = csv.writer(RowEnds(stream, style.newline), delimiter=style.delimiter, lineterminator=RowEnds.WRITTEN)
        self.cells = SpreadsheetCells(cells) if spreadsheet_safe else cells
        self.cells.writerow([*self.columns, *_free(list(task.cells(None)), self.columns)])

    def write(self, row: Row, prediction: Prediction | None) -> None:
        """Write one row."""
        said = self.task.cells(prediction).values()
        self.cells.writerow([*(row.values.get(name, "") for name in self.columns), *said])

    def finish(self) -> None:
        """Write nothing more."""


class RowEnds:
    """A stream for csv.writer, on which each row ends as it should.

    Before Python 3.13 csv.writer quotes a line end in a cell only if its own line terminator holds that character. It
    therefore writes rows with both, WRITTEN, and this puts the wanted one in their place.
    """

    WRITTEN = "\r\n"

    def __init__(self, stream: TextIO, newline: str) -> None:
        """Write to `stream` rows that end in `newline`."""
        self.stream = stream
        self.newline = newline

    def write(self, row: str) -> int:
        """Write one row; csv.writer gives whole ones."""
        return self.stream.write(row.removesuffix(self.WRITTEN) + self.newline)


class SpreadsheetCells:
    """A csv.writer's `writerow` that puts an apostrophe before each cell which a spreadsheet would evaluate."""

    def __init__(self, cells: Any) -> None:
        """Write to `cells`, a csv.writer."""
        self.cells = cells

    def writerow(self, row: Sequence[object]) -> None:
        """Write one row."""
        self.cells.writerow([f"'{cell}" if is_formula(str(cell)) else cell for cell in row])


def is_formula(cell: str) -> bool:
    """Return whether a spreadsheet may evaluate a cell: it starts like a formula and is not a number."""
    if not cell.startswith(FORMULA_STARTS):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return cell[0].isspace()


def _json(value: Any) -> str:
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


def _free(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return the names, with a number behind each that the table has already."""
    free = []
    for name in names:
        number, wanted = 2, name
        while wanted in taken:
            wanted, number = f"{name} {number}", number + 1
        free.append(wanted)
    return free
