"""The machine of verbs on rows: it computes and writes rows window by window, and resumes after the last window.

A verb gives a RowSource and its RowJob (contract.py). Everything else is here: local copies of remote files, the claim
on the output, standard input, the check of the whole file, unfinished work, tasks on other machines, and progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic

from osbert.corpus.task_options import EXECUTORS, TaskOptions, TaskPlan
from osbert.errors import UserError
from osbert.extensions import require_extension
from osbert.files import disk_needed
from osbert.inference.vectors.growing import GrowingFiles
from osbert.lock import claim
from osbert.remote import local_copy, local_output, reading_copies
from osbert.runs.contract import Notice, Watch, WorkProgress
from osbert.runs.rows.contract import ROWS, Job, RowSink, RowSource, RowStream
from osbert.runs.rows.standard_input import as_given, rename_in_errors, resolve_input
from osbert.runs.rows.unfinished import UnfinishedOutput, explaining_stops, open_unfinished_output
from osbert.terminal import format_count


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


@contextmanager
def local_files(file: Path, out: Path | None) -> Iterator[tuple[Path, Path | None]]:
    """Yield a file and an output as local paths, where the user gave addresses; the output is uploaded at the end.

    Copies are held until the end of the block, and its errors name their addresses. Raises UserError as `local_copy`
    and `local_output`.
    """
    with ExitStack() as held:
        held.enter_context(reading_copies())
        local_out = held.enter_context(local_output(out, inputs=[file])) if out else None
        yield local_copy(file), local_out


@contextmanager
def open_machine(source: RowSource[Job], out: Path | None, watch: Watch) -> Iterator[RowMachine[Job]]:
    """Open the model and the file of a source, and claim the output `out`; None for a stream.

    Raises UserError if a path or an option cannot be used.
    """
    with local_files(source.file, out) as (file, local_out):
        source = source.with_paths(file, local_out)
        with open_workspace(local_out, source.work_name) as (folder, work):
            # Standard input is copied to the folder, so that a resumed command can read it again.
            path = resolve_input(file, folder, form=source.form)
            plan = source.reading.plan() if isinstance(source.reading, TaskOptions) else None
            if plan is not None and work is None:  # the parts of a file alone can wait for each other
                raise UserError("--executor needs an output file: give --out.", code="options-exclude-each-other")
            source = replace(source, file=path, name=as_given(str(path), folder))
            job = source.open()
            for line in job.describe():
                watch(Notice(as_given(line, folder)))
            yield RowMachine(job=job, source=source, folder=folder, work=work, plan=plan, watch=watch)


@dataclass(frozen=True, kw_only=True)
class RowMachine(Generic[Job]):
    """Does a job, started or resumed, in `folder`.

    `work`: the unfinished output; None if the output is a stream. `plan`: how the work is divided into tasks, if it is.
    """

    job: Job
    source: RowSource[Job]
    folder: Path
    work: UnfinishedOutput | None
    plan: TaskPlan | None
    watch: Watch

    def count_rows(self) -> int:
        """Return the number of rows: a first call reads the whole file, so that every bad row is reported at once.

        Raises UserError if an earlier call had other settings.
        """
        if self.work is None or not (begun := self.work.begun):
            return self.job.check(self.watch)
        self.work.refuse_other(begun["facts"], self.job.facts)
        return int(begun["count"])

    def run(self) -> GrowingFiles:
        """Do what is left of the work; return the files of results, checked."""
        count = self.count_rows()
        if self.plan and self.work:
            self.work.begin(self.job.facts, count)
            run_tasks = require_extension(EXECUTORS, "rows", "--executor")
            return run_tasks(self.source, self.job, self.plan, self.folder, self._report)
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

        self._report(done(), count)
        with explaining_stops(self.work, done, self._name_count(count), self.watch):
            for parts, tally in self.job.grow(sink, count):
                # Not earlier: a call that fails at its first window leaves no unfinished work behind.
                if self.work and not (sink.tally or self.work.begun):
                    self.work.begin(self.job.facts, count)
                sink.append(parts, tally)
                self._report(done(), count)
        ending = self.job.end(sink.tally)
        if ending is not None and not sink.tally.get("ended"):
            beginning = b"" if sink.tally else self.job.begin() or b""
            sink.append({ROWS: beginning + ending}, {**sink.tally, "ended": 1})

    def _report(self, done: int, count: int) -> None:
        self.watch(WorkProgress(of=self.job.work, done=done, count=count))

    def _name_count(self, count: int) -> str:
        return format_count(count, self.job.unit)
