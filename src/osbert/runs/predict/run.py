"""Predicts every row of a file with a fine-tuned run, window by window, after the whole file was checked."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from osbert.errors import Problems
from osbert.files import replace_file, require_file
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.form import plain_suffix
from osbert.reading.snapshot import Snapshot
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.file_options import FileOptions
from osbert.runs.predict.forms.contract import PredictedRow, RowForm, RowLayout
from osbert.runs.predict.output import PredictionOutput, named
from osbert.runs.predict.part import RowPart, RowSink, RowStream
from osbert.runs.standard_input import as_given, kept_input, named_as_given
from osbert.runs.unfinished import UnfinishedOutput, explaining_stops, unfinished_output
from osbert.tasks import Inputs, Prediction, Record, Task
from osbert.terminal import counted, one_line
from osbert.training.checkpoint import disk_needed
from osbert.training.run_folder import FACTS, OURS

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

TEXTS, CHARACTERS = 4096, 2**22
"""About the most texts, and characters, in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class PredictionProgress:
    """Event: `done` of `count` rows are predicted and written."""

    done: int
    count: int


@dataclass(frozen=True, kw_only=True)
class PredictionTally:
    """Counts of written rows, of empty ones without a prediction, and of truncated ones.

    `withheld`: answers below the probability of --abstain. `limit`: a description of how much of a text is read.
    """

    rows: int = 0
    empty: int = 0
    cut: int = 0
    withheld: int = 0
    limit: str = ""

    def described(self) -> Iterator[str]:
        """Yield sentences with the counts that are not 0."""
        yield counted(self.rows, "row")
        if self.empty:
            yield f"{self.empty:,} without text {'has' if self.empty == 1 else 'have'} no prediction"
        if self.cut:
            yield f"{self.cut:,} longer than {self.limit}, see the column truncated"
        if self.withheld:
            yield f"{counted(self.withheld, 'answer')} withheld, see the column abstained"


def predict_file(
    run: Path,
    file: Path,
    *,
    output: PredictionOutput,
    options: FileOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> PredictionTally:
    """Predict every row of a file with the fine-tuned run in the folder `run`, and write the rows to `output`.

    `file`: - for standard input. An output file gets its name when it is complete; until then its rows are in
    OUT.unfinished, and the same call resumes a stopped one.

    Raises UserError that lists all unusable rows before anything is written, and if the unfinished work is of another
    call.
    """
    output.options.check()
    out = output.file
    if out is not None:
        require_file(out, (file, *(run / name for name in (*OURS, FACTS))))
    with ExitStack() as held:
        work = None
        if out is not None and output.is_kept:
            held.enter_context(disk_needed(out, goes_on="after the last window"))
            place = held.enter_context(claim(out))
            work = held.enter_context(unfinished_output(place, "a prediction that was begun"))
        folder = work.folder if work else Path(held.enter_context(TemporaryDirectory(prefix="osbert-")))
        held.enter_context(named_as_given(folder))
        path = kept_input(file, folder, form=output.options.form)
        prediction = _FilePrediction(path=path, output=output, folder=folder, work=work, watch=watch)
        return prediction.complete(run, options or FileOptions(), opening)


@dataclass(frozen=True, kw_only=True)
class _FilePrediction:
    """The prediction of the file `path`, started or resumed.

    `folder`: for unfinished rows. `work`: the unfinished output; None if the output is a stream.
    """

    path: Path
    output: PredictionOutput
    folder: Path
    work: UnfinishedOutput | None
    watch: Watch

    def complete(self, run: Path, options: FileOptions, opening: Opening) -> PredictionTally:
        """Predict the remaining rows, and write the output."""
        from osbert.inference.engine import load  # torch takes seconds to import

        source = open_folder(run, opening)
        weights = source.fingerprint if self.work else ""  # before `load`, which frees the memory of the weights
        engine = load(source)
        task = engine.fine_tuned.source.moved(self.path, options.given(engine.fine_tuned))
        report_remarks(engine, self.watch)
        inputs = task.source.inputs(self.path)
        self.watch(Notice(as_given(inputs.describe, self.folder)))
        bare = self.output.file is None
        form = self.output.form(
            RowLayout(file=self.path, task=task, inputs=inputs, options=self.output.options, bare=bare)
        )
        before = Snapshot(self.path, name=as_given(str(self.path), self.folder))
        facts = self._facts(engine, task, form) | {"input": before.sha256, "weights": weights}
        count = self._begun(facts)
        if count is None:
            count = check(engine, inputs, self.path, form=form, watch=self.watch)
        rows = _Rows(engine=engine, inputs=inputs, form=form, before=before, count=count)
        tally = self._write(rows, facts)
        shown = {name: tally.get(name, 0) for name in ("rows", "empty", "cut", "withheld")}
        return PredictionTally(**shown, limit=task.limit(engine.packer))

    def _facts(self, engine: Engine, task: Task, form: RowForm) -> dict[str, Any]:
        """Return the facts that must be equal to resume a call. They contain no folders: data may move."""
        settings = dataclasses.asdict(task) | {"data": "", "name": task.name}
        facts = {
            "ending": plain_suffix(self.path),
            "tokenizer": engine.tokenizer.fingerprint,
            "task": settings,
            "output": dataclasses.asdict(self.output.options) | {"form": "", "out_form": named(type(form))},
        }
        return dict(json.loads(json.dumps(facts, default=str)))

    def _begun(self, facts: Mapping[str, Any]) -> int | None:
        """Return the number of rows counted by an earlier call, None without one. UserError if the call differs."""
        if self.work is None or not (begun := self.work.begun):
            return None
        self.work.refuse_other(begun["facts"], facts)
        return int(begun["count"])

    def _write(self, rows: _Rows, facts: Mapping[str, Any]) -> Mapping[str, int]:
        if rows.form.is_text and self.work is None:
            with self.output.text_stream() as stream:
                sink = RowStream(stream)
                self._follow(rows, sink, facts)
            return sink.tally
        part = RowPart(self.folder)
        if done := part.tally.get("read"):
            self.watch(Notice(f"going on after {done:,} of {counted(rows.count, 'row')}"))
        self._follow(rows, part, facts)
        part.check()
        if self.work:
            replace_file(self.work.out, lambda aside: rows.form.finish(part.path, aside))
            self.work.end()
            return part.tally
        rows.form.finish(part.path, self.folder / "finished")
        with self.output.byte_stream() as stream, (self.folder / "finished").open("rb") as finished:
            shutil.copyfileobj(finished, stream, 2**20)
        return part.tally

    def _follow(self, rows: _Rows, sink: RowSink, facts: Mapping[str, Any]) -> None:
        """Predict and write the remaining rows, window by window, and then the end of the form."""
        done = sink.tally.get("read", 0)
        self.watch(PredictionProgress(done=done, count=rows.count))
        with explaining_stops(self.work, lambda: sink.tally.get("read", 0), counted(rows.count, "row"), self.watch):
            for text, tally in rows.windows(sink.tally):
                if self.work and not (sink.tally or self.work.begun):
                    self.work.begin(facts, rows.count)
                sink.append(text, tally)
                self.watch(PredictionProgress(done=tally["read"], count=rows.count))
            rows.before.require_rows(sink.tally.get("read", 0), rows.count)
            rows.before.require_same(whole=True)
        if not sink.tally.get("ended"):
            text = ("" if sink.tally else rows.form.begin()) + rows.form.end(sink.tally.get("rows", 0))
            sink.append(text, {**sink.tally, "ended": 1})


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The `count` rows of a file, with the engine and the form; `before`: the file as it was checked."""

    engine: Engine
    inputs: Inputs
    form: RowForm
    before: Snapshot
    count: int

    def windows(self, tally: Mapping[str, int]) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield (text, tally) for each window of rows after those of `tally`; the new tally includes the window.

        Raises UserError if a row can no longer be read, or the file has changed.
        """
        problems = self.before.problems()
        for chunk in _chunks(islice(self.inputs.rows(problems), tally.get("read", 0), None)):
            problems.stop_if_any()
            self.before.require_same()
            said = iter(self.engine.predict_records([record for _, record in chunk if record is not None]))
            pairs = ((row, None if record is None else next(said)) for row, record in chunk)
            rows = list(self._decided(pairs, tally.get("rows", 0)))
            text = ("" if tally else self.form.begin()) + "".join(map(self.form.row, rows))
            tally = _counts(tally, rows, len(chunk))
            chunk.clear()  # before the next window is read
            rows.clear()
            yield text, tally
        problems.stop_if_any()

    def _decided(self, pairs: Iterator[tuple[Row, Prediction | None]], number: int) -> Iterator[PredictedRow]:
        """Yield the rows to write, numbered from `number`."""
        columns = self.form.layout.options
        for row, prediction in pairs:
            for part, one in self.inputs.parts(row, prediction):
                said, withheld = (None, 0) if one is None else columns.decided(one)
                yield PredictedRow(number=number, row=part, prediction=said, withheld=withheld)
                number += 1


def _counts(before: Mapping[str, int], rows: Sequence[PredictedRow], read: int) -> dict[str, int]:
    """Return the tally after `read` further rows of the file and the written `rows`."""
    found = {
        "read": read,
        "rows": len(rows),
        "empty": sum(one.prediction is None for one in rows),
        "cut": sum(one.prediction is not None and one.prediction.truncated > 0 for one in rows),
        "withheld": sum(one.withheld for one in rows),
    }
    return {name: before.get(name, 0) + count for name, count in found.items()}


def check(engine: Engine, inputs: Inputs, file: Path, *, form: RowForm, watch: Watch) -> int:
    """Read the whole file and return its number of rows.

    Raises one UserError with every row that cannot be used, or is too long if the task does not allow truncation.

    If the form writes rows by their ids, ids must be unique. Fields that occur only after the first rows have no column
    and are lost in forms with cells; a notice names them.
    """
    problems = Problems(heading=f"{file} cannot be used")
    first: dict[str, str] = {}
    late: dict[str, int] = {}
    columns = {*inputs.columns} if form.has_cells else None
    count = 0
    for count, (row, record) in enumerate(inputs.rows(problems), 1):  # noqa: B007 - the count is returned
        if record is not None:
            engine.fine_tuned.refuse_long([record], engine.packer, problems)
        for name in row.values.keys() - columns if columns is not None else ():
            late.setdefault(name, row.line)
        if form.keyed:
            place = f"{file}, line {row.line}" if record is None else record.place
            called = inputs.called(row)
            if first.setdefault(called, place) != place:
                shown = one_line(called)
                problems.add(
                    f"{place}: the id '{shown}' is that of {first[called]} too. Mend it, or write .jsonl.",
                    code="duplicate-name",
                )
    problems.stop_if_any()
    if late:
        name, line = next(iter(late.items()))
        more = f" and {counted(len(late) - 1, 'more field')}" if len(late) > 1 else ""
        text = f"'{name}' (first in line {line}){more} is in none of the file's first rows and gets no column"
        watch(Notice(f"{text}: .jsonl and .parquet keep every field", warning=True))
    return count


def _chunks(rows: Iterator[tuple[Row, Record | None]]) -> Iterator[list[tuple[Row, Record | None]]]:
    """Yield chunks of rows. From a given row on the chunks are always the same."""
    chunk: list[tuple[Row, Record | None]] = []
    texts = characters = 0
    for row, record in rows:
        chunk.append((row, record))
        texts += 1 if record is None else len(record.texts)
        characters += 0 if record is None else sum(map(len, record.texts))
        if texts >= TEXTS or characters >= CHARACTERS:
            yield chunk
            chunk, texts, characters = [], 0, 0
    if chunk:
        yield chunk
