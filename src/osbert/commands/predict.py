"""osbert predict: what a fine-tuned run says of a text, a pair of texts, or every row of a file."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TextIO

from cyclopts import Parameter

from osbert.commands.evaluate import moved_task
from osbert.commands.file_options import FileOptions
from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.errors import Problems, UserError
from osbert.files import is_stream, require_file, writing_output
from osbert.interop.opening import CAREFUL
from osbert.lock import claim
from osbert.reading.snapshot import Snapshot
from osbert.reading.table import CellStyle, Row
from osbert.tasks import Inputs, Prediction, Task
from osbert.terminal import one_line
from osbert.training.run_folder import FACTS, OURS

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

ROWS = 2048
"""Rows in memory at a time."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Starts of cells that a spreadsheet evaluates as a formula, or skips before one."""


def predict(
    run: ModelFolder,
    /,
    *texts: str,
    file: Path | None = None,
    out: Path | None = None,
    options: Annotated[FileOptions | None, Parameter(name="*")] = None,
    spreadsheet_safe: bool = False,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Predict with a fine-tuned run: one text (or a pair, or all that it reads together), or every row of a file.

    A file needs no label column. Its rows come out in their order with all their columns, and with the prediction, the
    probability of every label by its name, and `truncated`, the pieces at the text's end that were not read. Rows with
    an empty text have an empty prediction, and so have the blank lines of a file of one column, a .txt file included.

    Parameters
    ----------
    run
        The folder of a fine-tuned run, or its name on the hub.
    texts
        The text, in quotes; write -- before one that begins with a hyphen. Where the run reads several texts together,
        such as pairs, all of them in their order.
    file
        A CSV, TSV or JSON-lines file, instead of a text.
    out
        The file to write: .csv, .tsv or .jsonl; or .json for answers to questions, in the form that SQuAD's official
        scorer reads. A .csv file of a .csv file keeps its delimiter, line ends and byte-order mark. Without it the rows
        go to standard output.
    spreadsheet_safe
        Write an apostrophe before each cell of a CSV or TSV that a spreadsheet would take for a formula: one that
        begins with = + - @, a tab or a line end, and is not a number.
    """
    from osbert.inference.engine import load

    if bool(texts) == (file is not None):
        raise UserError('Give one text, as in osbert predict RUN "a text", or a file: --file in.csv --out out.csv.')
    if file is None:
        if options or out or spreadsheet_safe:
            raise UserError("--out and how to read a file (--text, ...) go with --file, not with a single text.")
        if not any(text.strip() for text in texts):
            raise UserError("The text is empty: there is nothing to predict for it.")
        tell(load(run, opening=opening), texts)
        return
    options = options or FileOptions()
    if out is None:
        predict_file(load(run, opening=opening), file, None, options, spreadsheet_safe=spreadsheet_safe)
        return
    require_file(out, (file, *(run / name for name in (*OURS, FACTS))))
    with claim(out) as path:
        predict_file(load(run, opening=opening), file, out, options, path=path, spreadsheet_safe=spreadsheet_safe)


def tell(engine: Engine, texts: tuple[str, ...]) -> None:
    """Print the prediction for one text, or for several that are read together."""
    prediction = engine.predict([texts])[0]
    tell_remarks(engine)
    for line in prediction.told():
        print(one_line(line))
    if prediction.truncated:
        limit = engine.fine_tuned.limit(engine.packer)
        where = engine.fine_tuned.unread
        print(f"  {prediction.truncated:,} pieces {where} were not read: the run reads {limit}.")


def tell_remarks(engine: Engine) -> None:
    """Print what was odd about the model's folder, aside from the predictions."""
    for remark in engine.remarks:
        print(f"{engine.folder}: {one_line(remark)}", file=sys.stderr)


def predict_file(
    engine: Engine,
    file: Path,
    out: Path | None,
    options: FileOptions,
    *,
    path: Path | None = None,
    spreadsheet_safe: bool = False,
) -> None:
    """Predict every row of a file; its rows are checked whole before the first is predicted.

    `out`: the name that decides the form. `path`: the file to write, which is another one if `out` is a link.
    """
    task = moved_task(engine.fine_tuned, file, options)
    tell_remarks(engine)
    inputs = task.source.inputs(file)
    print(one_line(inputs.describe), file=sys.stderr)
    before = Snapshot(file)
    wanted = check(engine, inputs, file, keyed=_is_official(out, inputs))
    count = empty = cut = 0
    with writing(path) as stream:
        writer = open_writer(out, stream, task, inputs, spreadsheet_safe=spreadsheet_safe)
        for row, prediction in predictions(engine, inputs, before):
            writer.write(row, prediction)
            count += 1
            empty += prediction is None
            cut += prediction is not None and prediction.truncated > 0
        before.require_rows(count, wanted)
        before.require_same(whole=True)
        writer.finish()
    notes = [f"{count:,} rows"]
    notes += [f"{empty:,} without text have no prediction"] if empty else []
    notes += [f"{cut:,} longer than {task.limit(engine.packer)}, see the column truncated"] if cut else []
    print(f"{', '.join(notes)}{f' -> {out}' if out else ''}", file=sys.stderr)


def check(engine: Engine, inputs: Inputs, file: Path, *, keyed: bool) -> int:
    """Read the whole file and return how many rows it has.

    Raises one UserError with every row that cannot be used or may not be cut.

    `keyed`: predictions are written by the rows' ids, each of which must then be one row's alone.
    """
    problems = Problems(heading=f"{file} cannot be used")
    first: dict[str, str] = {}
    count = 0
    for count, (row, record) in enumerate(inputs.rows(problems), 1):  # noqa: B007 - the count is returned
        if record is not None:
            engine.fine_tuned.refuse_long([record], engine.packer, problems)
        if keyed:
            place = f"{file}, line {row.line}" if record is None else record.place
            called = inputs.called(row)
            if first.setdefault(called, place) != place:
                shown = one_line(called)
                problems.add(f"{place}: the id '{shown}' is that of {first[called]} too. Mend it, or write .jsonl.")
    problems.stop_if_any()
    return count


def predictions(engine: Engine, inputs: Inputs, before: Snapshot) -> Iterator[tuple[Row, Prediction | None]]:
    """Yield each row with its prediction, None where there is no text, a few thousand rows in memory at a time.

    Raises UserError where a row can no longer be read or the file is no longer what it was `before`.
    """
    problems = before.problems()
    rows = inputs.rows(problems)
    while chunk := list(islice(rows, ROWS)):
        problems.stop_if_any()
        before.require_same()
        said = iter(engine.predict_records([record for _, record in chunk if record is not None]))
        yield from ((row, None if record is None else next(said)) for row, record in chunk)
    problems.stop_if_any()


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


def open_writer(
    out: Path | None, stream: TextIO, task: Task, inputs: Inputs, *, spreadsheet_safe: bool = False
) -> Writer:
    """Return the writer for the output's name; on standard output and devices the form is the input's."""
    named = out is not None and (out.suffix or not is_stream(out))
    suffix = out.suffix.lower() if out and named else ".jsonl" if inputs.lines else ".csv"
    if spreadsheet_safe and suffix not in (".csv", ".tsv"):
        raise UserError("--spreadsheet-safe is for .csv and .tsv: a spreadsheet takes no JSON for a formula.")
    if _is_official(out, inputs):
        return ObjectWriter(stream, inputs)
    if suffix in (".jsonl", ".ndjson", ".json"):
        return LineWriter(stream, inputs)
    if suffix in (".csv", ".tsv"):
        style = inputs.table.style(suffix) if inputs.table else CellStyle(delimiter="\t" if suffix == ".tsv" else ",")
        style = style if out else replace(style, start="")
        return CellWriter(stream, task, inputs, style=style, spreadsheet_safe=spreadsheet_safe)
    raise UserError(f"{out}: predictions are written as .csv, .tsv or .jsonl.")


def _is_official(out: Path | None, inputs: Inputs) -> bool:
    """Return whether predictions are written as one JSON object, by the rows' ids."""
    return out is not None and out.suffix.lower() == ".json" and bool(inputs.key)


@contextmanager
def writing(path: Path | None) -> Iterator[TextIO]:
    """Give a file that gets its name when it is complete, or standard output."""
    if path is None:
        yield sys.stdout
        return
    # A lone half of a pair, which JSON can hold, is written as JSON spells it.
    with (
        writing_output(path) as aside,
        aside.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream,
    ):
        yield stream


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
