"""The machine of verbs on rows: it computes and writes rows window by window, and resumes after the last window.

A verb gives a RowSource and its RowJob (contract.py). Everything else is here: local copies of remote files, the claim
on the output, standard input, the check of the whole file, unfinished work, tasks on other machines, and progress.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic

from osbert import recipe
from osbert.corpus.task_options import EXECUTORS, TaskOptions, TaskPlan
from osbert.errors import UserError
from osbert.extensions import require_extension
from osbert.files import disk_needed, flush, read_own, refuse_foreign, write_sealed
from osbert.guarded import require_regular
from osbert.lock import claim
from osbert.remote import local_copy, local_output, reading_copies
from osbert.runs.contract import Notice, Watch, WorkProgress
from osbert.runs.rows.contract import ROWS, Job, RowSink, RowSource, RowStream
from osbert.runs.rows.standard_input import KEPT, as_given, rename_in_errors, resolve_input
from osbert.terminal import format_count

PROGRESS = "progress.json"


class GrowingFiles:
    """Files `name`.bin in a folder that grow together, with a `tally` such as their number of rows.

    They are written by ordinary appends: on a full disk, writing to a memory map would end the process. The hash of
    each file is stored, and compared when the files are reopened and by `check`.
    """

    def __init__(self, folder: Path) -> None:
        """Open the files in an existing folder and cut off incomplete parts.

        Raises UserError if a file is shorter than recorded, or its content differs from the recorded hash.
        """
        self.folder = folder
        self.sizes: dict[str, int] = {}
        self.tally: dict[str, Any] = {}
        progress = folder / PROGRESS
        noted = read_own(progress, self._again) if progress.is_file() else {}
        if noted:
            self.sizes, self.tally = noted["sizes"], noted["tally"]
        for name, size in self.sizes.items():
            path = self.path(name)
            actual_size = path.stat().st_size if path.is_file() else 0
            if actual_size < size:
                raise UserError(
                    f"{path} has {actual_size:,} bytes, but {size:,} were written: it is damaged. {self._again}",
                    code="damaged-file",
                )
            os.truncate(path, size)
        self._hashes = {name: self._read(name, noted["hashes"][name]) for name in self.sizes}

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / f"{name}.bin"

    def append(self, parts: Mapping[str, bytes], tally: Mapping[str, Any]) -> None:
        """Append a part to each file, and record it once it is on the disk. Raises OSError."""
        sizes, hashes, digests = dict[str, int](), dict[str, Any](), dict[str, str]()
        for name, part in parts.items():
            size = self.sizes.get(name, 0)
            with self.path(name).open("r+b" if name in self.sizes else "wb") as file:
                file.seek(size)
                file.write(part)
                file.flush()
                flush(file.fileno())
            sizes[name] = size + len(part)
            hashes[name] = self._hashes[name].copy() if name in self._hashes else hashlib.sha256()
            hashes[name].update(part)
            digests[name] = hashes[name].hexdigest()
        # Only now, after the data: a kill before this line leaves surplus bytes, which the next start cuts off.
        write_sealed(self.folder / PROGRESS, {"sizes": sizes, "hashes": digests, "tally": dict(tally)})
        self.sizes, self._hashes, self.tally = sizes, hashes, dict(tally)

    def check(self) -> None:
        """Read all files. Raises UserError if one differs from what was written."""
        for name, hashed in self._hashes.items():
            self._read(name, hashed.hexdigest())

    def _read(self, name: str, digest: str) -> Any:
        """Return a hash object of a file's content, which `update` continues.

        Raises UserError unless its hash is `digest`.
        """
        path = self.path(name)
        require_regular(path)
        with path.open("rb") as file:
            hashed = hashlib.file_digest(file, "sha256")
        if hashed.hexdigest() != digest:
            raise UserError(f"{path} is damaged: its content has changed. {self._again}", code="damaged-file")
        return hashed

    @property
    def _again(self) -> str:
        return f"Remove {self.folder} to start again."


FACTS = "run.json"
OTHERS = ("progress.json", f"{KEPT}*", "*.bin", "*.figures.json", "tasks-*", "submitted.json")
"""The other files of unfinished work."""


@dataclass(frozen=True, kw_only=True)
class UnfinishedOutput:
    """The folder `folder` of the unfinished work on the output `out`."""

    out: Path
    folder: Path

    @property
    def begun(self) -> dict[str, Any]:
        """Return what `begin` wrote, {} if it was not called yet. Raises UserError if that is damaged."""
        path = self.folder / FACTS
        return read_own(path, f"Remove {self.folder} to begin anew.") if path.is_file() else {}

    def begin(self, facts: Mapping[str, Any], count: int) -> None:
        """Write the facts of the work and the number of its rows: the folder now stays until `end`."""
        write_sealed(self.folder / FACTS, {"facts": facts, "count": count})

    def end(self) -> None:
        """Mark the work as done: the folder goes."""
        # The facts file marks unfinished work; without it `open_unfinished_output` removes the folder.
        (self.folder / FACTS).unlink(missing_ok=True)

    def refuse_other(self, before: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Raise UserError if the facts that the work was begun with are not those of the command given now."""
        # Through JSON and back, as `before` was: tuples are lists in both.
        if lines := recipe.difference(before, json.loads(json.dumps(facts))):
            raise UserError(
                f"{self.out} was begun with other settings or inputs:\n"
                + "\n".join(f"  {line}" for line in lines)
                + f"\nGive the command that it was begun with to go on, remove {self.folder} to begin anew, or choose "
                "another --out.",
                code="begun-with-other-settings",
            )


@contextmanager
def open_unfinished_output(out: Path, what: str) -> Iterator[UnfinishedOutput]:
    """Give the folder beside `out`, made if it is missing; at the end it goes if nothing was begun, or all is done.

    `what`: the name of the work, for the message where the folder holds something else, which raises UserError.
    """
    folder = out.with_name(f"{out.name}.unfinished")
    if not (folder / FACTS).is_file():
        refuse_foreign(folder, what, OTHERS)
    folder.mkdir(exist_ok=True)
    try:
        yield UnfinishedOutput(out=out, folder=folder)
    finally:
        if not (folder / FACTS).is_file():
            shutil.rmtree(folder)


@contextmanager
def explaining_stops(work: UnfinishedOutput | None, done: Callable[[], int], of: str, watch: Watch) -> Iterator[None]:
    """If the block ends early, report how much is done and how to go on.

    The end may be a KeyboardInterrupt, the SystemExit of `sigterm_as_exit`, or a UserError. `done`: returns the number
    of finished rows. `of`: the total, in words. `work`: None if the output is a stream, which no command can continue.
    """

    def describe_progress() -> str:
        if work is None:
            return f"{done():,} of {of} were written"
        if not done():
            return f"0 of {of} are done"
        return f"{done():,} of {of} are done and kept in {work.folder}: the same command goes on from there"

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        watch(Notice(f"stopped: {describe_progress()}", warning=True))
        raise
    except UserError as error:
        if not done():
            raise
        raise UserError(f"{error}\n{describe_progress()}.", code=error.code, codes=error.codes) from error


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
def open_machine(source: RowSource[Job], out: Path | None, watch: Watch) -> Iterator[RowMachine[Job]]:
    """Open the model and the file of a source, and claim the output `out`; None for a stream.

    Raises UserError if a path or an option cannot be used.
    """
    with ExitStack() as held:
        # Copies of what is on an object store are held until the end; the output is uploaded then.
        held.enter_context(reading_copies())
        local_out = held.enter_context(local_output(out, inputs=[source.file])) if out else None
        source = source.with_paths(local_copy(source.file), local_out)
        folder, work = held.enter_context(open_workspace(local_out, source.work_name))
        # Standard input is copied to the folder, so that a resumed command can read it again.
        path = resolve_input(source.file, folder, form=source.form)
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
            self.watch(Notice(f"going on after {done:,} of {format_count(count, self.job.unit)}"))
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
        with explaining_stops(self.work, done, format_count(count, self.job.unit), self.watch):
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
