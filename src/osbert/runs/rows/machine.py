"""The machine of verbs on rows: rows in, results out, window by window; a stopped command goes on after the last one.

A verb gives a RowSource and its RowJob (contract.py). Everything else stands here: the claim on the output, the check
of the whole file, what is kept of a stopped command, tasks on other processes and machines, and progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from osbert.files import disk_needed
from osbert.inference.vectors.growing import GrowingFiles
from osbert.lock import claim
from osbert.runs.contract import Notice, Watch
from osbert.runs.rows.contract import ROWS, RowJob, RowSink, RowSource, RowStream
from osbert.runs.rows.standard_input import rename_in_errors
from osbert.runs.rows.unfinished import UnfinishedOutput, explaining_stops, open_unfinished_output
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.corpus.task_options import TaskPlan


@contextmanager
def open_workspace(out: Path | None, what: str) -> Iterator[tuple[Path, UnfinishedOutput | None]]:
    """Claim an output; yield the folder for unfinished rows, and the unfinished output.

    `out`: None for a stream, whose folder is a temporary one, without an unfinished output. `what`: the name of the
    work in a message. Raises UserError if another process writes the output.
    """
    with ExitStack() as held:
        if out is None:
            folder, work = Path(held.enter_context(TemporaryDirectory(prefix="osbert-"))), None
        else:
            held.enter_context(disk_needed(out, goes_on="after the last window"))
            work = held.enter_context(open_unfinished_output(held.enter_context(claim(out)), what))
            folder = work.folder
        held.enter_context(rename_in_errors(folder))
        yield folder, work


@dataclass(frozen=True, kw_only=True)
class RowMachine:
    """Does a job, started or resumed, in `folder`. `work`: the unfinished output; None if the output is a stream."""

    job: RowJob
    folder: Path
    work: UnfinishedOutput | None
    watch: Watch

    def count_rows(self) -> int:
        """Return the number of rows: a first call reads the whole file, so that every bad row is reported at once.

        Raises UserError if an earlier call had other settings.
        """
        if self.work is None or not (begun := self.work.begun):
            return self.job.check(self.watch)
        self.work.refuse_other(begun["facts"], self.job.facts)
        return int(begun["count"])

    def run(self, source: RowSource, plan: TaskPlan | None = None) -> GrowingFiles:
        """Do what is left of the work; return all that has grown, checked. `plan`: do it in tasks."""
        count = self.count_rows()
        if plan and self.work:
            return self._run_tasks(self.work, plan, source, count)
        growing = GrowingFiles(self.folder)
        if done := growing.tally.get(self.job.cursor):
            self.watch(Notice(f"going on after {done:,} of {self._name_count(count)}"))
        self._follow(growing, count)
        growing.check()
        return growing

    def stream(self, stream: RowStream) -> Mapping[str, int]:
        """Do the work into a stream, and return the tally."""
        self._follow(stream, self.count_rows())
        return stream.tally

    def _follow(self, sink: RowSink, count: int) -> None:
        def done() -> int:
            return int(sink.tally.get(self.job.cursor, 0))

        self.watch(self.job.progress(done=done(), count=count))
        with explaining_stops(self.work, done, self._name_count(count), self.watch):
            for parts, tally in self.job.grow(sink, count):
                # Not earlier: a call that fails at its first window leaves no unfinished work behind.
                if self.work and not (sink.tally or self.work.begun):
                    self.work.begin(self.job.facts, count)
                sink.append(parts, tally)
                self.watch(self.job.progress(done=done(), count=count))
        ending = self.job.end(sink.tally)
        if ending is not None and not sink.tally.get("ended"):
            beginning = b"" if sink.tally else self.job.begin() or b""
            sink.append({ROWS: beginning + ending}, {**sink.tally, "ended": 1})

    def _run_tasks(self, work: UnfinishedOutput, plan: TaskPlan, source: RowSource, count: int) -> GrowingFiles:
        """Do all of the work in tasks, and join their parts."""
        from osbert.runs.rows.tasks import RowTasks, RowWork, join_parts  # late: one process needs none of it

        def report(done: int, count: int) -> None:
            self.watch(self.job.progress(done=done, count=count))

        work.begin(self.job.facts, count)
        tasks = RowTasks(plan=plan, folder=self.folder)
        parts = tasks.run(RowWork(source=source, facts=self.job.facts), self.job.windows, report)
        return join_parts(parts, self.folder / "tasks-joined", self.job)

    def _name_count(self, count: int) -> str:
        return format_count(count, self.job.unit)
