"""Predicts every row of a file with a fine-tuned run, window by window, after the whole file was checked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from osbert.files import disk_needed, replace_file, require_file
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.remote.addresses import local_copy, local_output
from osbert.remote.cache import reading_copies
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.file_options import FileOptions
from osbert.runs.predict.output import PredictionOutput
from osbert.runs.predict.part import RowPart, RowSink, RowStream
from osbert.runs.predict.rows import PredictedFile, PredictionRows, chunks
from osbert.runs.predict.tasks import PredictionWork, join_parts
from osbert.runs.row_tasks import RowTasks, row_plan
from osbert.runs.standard_input import as_given, rename_in_errors, resolve_input
from osbert.runs.unfinished import UnfinishedOutput, explaining_stops, open_unfinished_output
from osbert.terminal import format_count
from osbert.training.run_folder import FACTS, OURS


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

    def describe(self) -> Iterator[str]:
        """Yield sentences with the counts that are not 0."""
        yield format_count(self.rows, "row")
        if self.empty:
            yield f"{self.empty:,} without text {'has' if self.empty == 1 else 'have'} no prediction"
        if self.cut:
            yield f"{self.cut:,} longer than {self.limit}, see the column truncated"
        if self.withheld:
            yield f"{format_count(self.withheld, 'answer')} withheld, see the column abstained"


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
    with ExitStack() as remote:
        remote.enter_context(reading_copies())
        if output.is_kept and output.path is not None:
            output = replace(output, path=remote.enter_context(local_output(output.path, inputs=[file])))
        return _predict(run, local_copy(file), output, options or FileOptions(), opening, watch)


def _predict(
    run: Path, file: Path, output: PredictionOutput, options: FileOptions, opening: Opening, watch: Watch
) -> PredictionTally:
    """Predict a local file into a local output."""
    out = output.file
    if out is not None:
        require_file(out, (file, *(run / name for name in (*OURS, FACTS))))
    with ExitStack() as held:
        work = None
        if out is not None and output.is_kept:
            held.enter_context(disk_needed(out, goes_on="after the last window"))
            claimed_path = held.enter_context(claim(out))
            work = held.enter_context(open_unfinished_output(claimed_path, "a prediction that was begun"))
        folder = work.folder if work else Path(held.enter_context(TemporaryDirectory(prefix="osbert-")))
        held.enter_context(rename_in_errors(folder))
        # Standard input is copied to the folder, so that a stopped prediction can read it again.
        path = resolve_input(file, folder, form=output.options.form)
        prediction = _FilePrediction(path=path, output=output, folder=folder, work=work, watch=watch)
        return prediction.complete(run, options, opening)


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
        plan = row_plan(options, is_kept=self.work is not None)
        source = self.source(run, options, opening)
        rows = PredictionRows.open(source, weights=bool(self.work))
        report_remarks(rows.engine, self.watch)
        self.watch(Notice(as_given(rows.inputs.describe, self.folder)))
        if left_out := self.output.options.left_out(rows.task):
            self.watch(Notice(left_out))
        count = self._read_count(rows.facts)
        if count is None:
            # A first call reads the whole file once, so that every bad row is reported before any is predicted.
            count = rows.check(self.watch)
        if plan is None or self.work is None:
            tally = self._write(rows, count)
        else:
            self.work.begin(rows.facts, count)
            tasks = RowTasks(plan=plan, folder=self.folder)
            tally = self._write_in_tasks(self.work, tasks, rows, PredictionWork.of(source, rows.facts))
        counts = {name: tally.get(name, 0) for name in ("rows", "empty", "cut", "withheld")}
        return PredictionTally(**counts, limit=rows.task.limit(rows.engine.packer))

    def source(self, run: Path, options: FileOptions, opening: Opening) -> PredictedFile:
        """Return what is predicted, by which run, into which form."""
        name = as_given(str(self.path), self.folder)
        return PredictedFile(run=run, path=self.path, name=name, options=options, opening=opening, output=self.output)

    def _read_count(self, facts: Mapping[str, Any]) -> int | None:
        """Return the number of rows counted by an earlier call, None without one. UserError if the call differs."""
        if self.work is None or not (begun := self.work.begun):
            return None
        self.work.refuse_other(begun["facts"], facts)
        return int(begun["count"])

    def _write(self, rows: PredictionRows, count: int) -> Mapping[str, int]:
        if rows.form.is_text and self.work is None:
            with self.output.text_stream() as stream:
                sink = RowStream(stream)
                self._follow(rows, sink, count)
            return sink.tally
        part = RowPart(self.folder)
        if done := part.tally.get("read"):
            self.watch(Notice(f"going on after {done:,} of {format_count(count, 'row')}"))
        self._follow(rows, part, count)
        part.check()
        if self.work:
            replace_file(self.work.out, lambda aside: rows.form.finish(part.path, aside))
            self.work.end()
            return part.tally
        # The form cannot be written row by row: it goes to the stream when it is complete.
        rows.form.finish(part.path, self.folder / "finished")
        with self.output.byte_stream() as stream, (self.folder / "finished").open("rb") as finished:
            shutil.copyfileobj(finished, stream, 2**20)
        return part.tally

    def _write_in_tasks(
        self, output: UnfinishedOutput, tasks: RowTasks, rows: PredictionRows, work: PredictionWork
    ) -> Mapping[str, int]:
        """Predict all rows in tasks, and write the output."""

        def report(done: int, count: int) -> None:
            self.watch(PredictionProgress(done=done, count=count))

        parts = tasks.run(work, lambda: chunks(rows.inputs.rows(rows.before.problems())), report)
        path = self.folder / "joined.bin"
        tally = join_parts(parts, rows.form, path)
        replace_file(output.out, lambda aside: rows.form.finish(path, aside))
        output.end()
        return tally

    def _follow(self, rows: PredictionRows, sink: RowSink, count: int) -> None:
        """Predict and write the remaining rows, window by window, and then the end of the form."""
        done = sink.tally.get("read", 0)
        self.watch(PredictionProgress(done=done, count=count))
        with explaining_stops(self.work, lambda: sink.tally.get("read", 0), format_count(count, "row"), self.watch):
            for text, tally in rows.windows(sink.tally):
                # Not earlier: a call that fails at its first window leaves no unfinished work behind.
                if self.work and not (sink.tally or self.work.begun):
                    self.work.begin(rows.facts, count)
                sink.append(text, tally)
                self.watch(PredictionProgress(done=tally["read"], count=count))
            rows.before.require_rows(sink.tally.get("read", 0), count)
            rows.before.require_same(whole=True)
        if not sink.tally.get("ended"):
            text = ("" if sink.tally else rows.form.begin()) + rows.form.end(sink.tally.get("rows", 0))
            sink.append(text, {**sink.tally, "ended": 1})
