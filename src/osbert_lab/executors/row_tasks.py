"""Work on the rows of a file in tasks: each range of rows is one task, which writes a part; parts are joined in order.

A range is a run of whole windows, those in which one process would read the rows. So each row is computed together with
the same rows as in one process, and the joined output has the same bytes (with the same number of threads).
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from osbert.corpus.task_options import PendingTasks, TaskPlan, cores
from osbert.errors import UserError
from osbert.files import read_own, write_sealed
from osbert.inference.vectors.files import ENDS
from osbert.runs.rows.contract import ROWS, RowJob, RowSource
from osbert.runs.rows.machine import GrowingFiles
from osbert_lab.executors.stages import MOST_TASKS, ExecutorStage, TaskFolders, run_stages, task_folder
from osbert_lab.object_stores.cache import require_copy

RANGES = "ranges.json"
TASKS = "tasks-{}"
"""The folder of a division into so many tasks."""
STARTS = "starts"
"""The part with the first token of each text, and at its end the number of tokens."""
BLOCK = 2**25
"""Bytes of a part that are copied at a time."""


@dataclass(frozen=True)
class RowRange:
    """Rows [start, stop) of a file, counted from 0."""

    start: int
    stop: int


class RangeWork(Protocol):
    """Work on a range of rows; an object that can be pickled, since the range may be another machine's."""

    @property
    def inputs(self) -> Sequence[Path]:
        """The paths that every task reads."""

    def __call__(self, rows: RowRange, folder: Path) -> None:
        """Do the work into `folder`, which may hold a part of it from a task that was killed."""


@dataclass(frozen=True)
class RangeStep:
    """The one step of a task of datatrove's: the work on the range of this rank. `threads`: of torch; 0 leaves them."""

    work: RangeWork
    ranges: Sequence[RowRange]
    folder: Path
    threads: int = 0

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Work on range number `rank`. Raises UserError if a copy of a remote input is no longer in the cache."""
        for path in self.work.inputs:
            require_copy(path)  # the command that fetched it may have ended, and holds it no more
        if self.threads:
            import torch

            torch.set_num_threads(self.threads)
        rank_folder = task_folder(self.folder, rank)
        rank_folder.mkdir(parents=True, exist_ok=True)
        self.work(self.ranges[rank], rank_folder)


@dataclass(frozen=True, kw_only=True)
class RowTasks:
    """Work on rows, divided into tasks: `folder` is that of the unfinished output."""

    plan: TaskPlan
    folder: Path

    def run(
        self, work: RangeWork, windows: Callable[[], Iterable[Sized]], report: Callable[[int, int], None]
    ) -> list[tuple[RowRange, Path]]:
        """Do the work on all ranges; return them in order, each with the folder of its part.

        `windows`: the windows of one process; read once, when the ranges are not known from an earlier call.

        Raises UserError if a task fails, and with the code tasks-pending while a cluster works on them.
        """
        tasks = self.plan.tasks or min(self.plan.workers or MOST_TASKS, MOST_TASKS)
        tasks_folder = self.folder / TASKS.format(tasks)
        tasks_folder.mkdir(exist_ok=True)
        if (tasks_folder / RANGES).is_file():
            ranges = [
                RowRange(**bounds)
                for bounds in read_own(tasks_folder / RANGES, f"Remove {tasks_folder} to begin anew.")["ranges"]
            ]
        else:
            ranges = divide_rows(windows(), tasks)
            write_sealed(tasks_folder / RANGES, {"ranges": [asdict(row_range) for row_range in ranges]})
        if not ranges:
            return []
        # Processes on one machine divide its cores; a task on a cluster uses the cores that it is given.
        threads = max(1, cores() // self.plan.workers) if self.plan.executor == "local" else 0
        step = RangeStep(work, ranges, tasks_folder.absolute(), threads)
        stage = ExecutorStage("rows", [step], len(ranges), [row_range.stop - row_range.start for row_range in ranges])
        try:
            run_stages([stage], self.plan, TaskFolders(tasks=tasks_folder, work=self.folder), report)
        except PendingTasks as error:
            raise UserError(
                f"The tasks are with {self.plan.executor}. Give the same command again when they have ended.",
                code="tasks-pending",
            ) from error
        return [(row_range, task_folder(tasks_folder, rank)) for rank, row_range in enumerate(ranges)]


def divide_rows(windows: Iterable[Sized], tasks: int) -> list[RowRange]:
    """Divide rows into at most `tasks` ranges of whole windows and nearly equal size.

    >>> divide_rows([range(4), range(4), range(4), range(2)], tasks=2)
    [RowRange(start=0, stop=8), RowRange(start=8, stop=14)]
    """
    bounds = [0, *accumulate(map(len, windows))]
    stops: dict[int, int] = {}
    for start, stop in pairwise(bounds):
        # A window goes to the task in whose equal part of the rows its middle lies.
        stops[min(tasks - 1, (start + stop) * tasks // (2 * bounds[-1]))] = stop
    return [RowRange(start, stop) for start, stop in zip([0, *stops.values()], stops.values())]


def require_facts(facts: Mapping[str, Any], known: Mapping[str, Any], name: str) -> None:
    """Raise UserError if a task finds another model or file (`name`) than the command that divided the work."""
    if json.loads(json.dumps(facts)) != json.loads(json.dumps(known)):
        raise UserError(
            f"{name}, or the model, has changed since the work was divided into tasks. Give the command again.",
            code="file-changed",
        )


@dataclass(frozen=True, kw_only=True)
class RowWork:
    """The work of a verb on a range of rows. `facts`: those of the model and the file that the command has opened."""

    source: RowSource[Any]
    facts: Mapping[str, Any]

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths of the model and of the file."""
        return self.source.inputs

    def __call__(self, rows: RowRange, folder: Path) -> None:
        """Write the results of the rows into `folder`, after the last window that a killed task has written.

        Raises UserError if the model or the file is another than that of the command.
        """
        job = self.source.open()
        require_facts(job.facts, self.facts, self.source.name)
        growing = GrowingFiles(folder)
        # The tally counts from the start of the file: the first row of all is written in another way than the others,
        # and JSON lines of vectors number the rows of the whole file.
        growing.tally = growing.tally or {job.cursor: rows.start, ROWS: rows.start, **job.count_before(rows.start)}
        for parts, tally in job.grow(growing, rows.stop):
            growing.append(parts, tally)


def run_row_tasks(
    source: RowSource[Any], job: RowJob, plan: TaskPlan, folder: Path, report: Callable[[int, int], None]
) -> GrowingFiles:
    """Do all of a job in tasks and join their parts. `folder`: that of the unfinished output.

    Raises UserError if a task fails, and with the code tasks-pending while a cluster works on them.
    """
    work = RowWork(source=source.with_absolute_paths(), facts=job.facts)
    parts = RowTasks(plan=plan, folder=folder).run(work, job.windows, report)
    return join_parts(parts, folder / "tasks-joined", job)


def join_parts(parts: Sequence[tuple[RowRange, Path]], folder: Path, job: RowJob) -> GrowingFiles:
    """Join what was written for all ranges in a folder, which is made anew; offsets count from the first range on.

    Raises UserError if a part is damaged or not whole.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    joined = GrowingFiles(folder)
    tally: Counter[str] = Counter()
    if (text := job.begin()) is not None:
        joined.append({ROWS: text}, {})
    for rows, part_folder in parts:
        part = GrowingFiles(part_folder)
        if part.tally.get(job.cursor) != rows.stop:
            raise UserError(
                f"{part_folder}: the part of rows {rows.start:,} to {rows.stop:,} is not whole. Remove "
                f"{part_folder.parent} and give the same command again.",
                code="damaged-file",
            )
        before = dict(joined.sizes)
        for name in part.sizes:
            base = tally["pieces"] if name == STARTS else before.get(name.removesuffix(ENDS), 0)
            for block in _blocks(part, name, base, skipped=name == STARTS and bool(before)):
                # All columns grow together: the others by nothing.
                joined.append({column: block if column == name else b"" for column in part.sizes}, {})
        tally.update(part.tally)
        tally.subtract({job.cursor: rows.start, ROWS: rows.start})
    if (text := job.end(tally)) is not None:
        joined.append({ROWS: text}, {})
    joined.tally = dict(tally)
    return joined


def _blocks(part: GrowingFiles, name: str, base: int, *, skipped: bool) -> Iterator[bytes]:
    """Yield the bytes of a column; offsets plus `base`. `skipped`: without the first one, the last of the part before.

    The columns of offsets are `starts`, of tokens, and those of the ends of texts.
    """
    offsets = name == STARTS or (name.endswith(ENDS) and name.removesuffix(ENDS) in part.sizes)
    with part.path(name).open("rb") as file:
        file.seek(8 if skipped else 0)
        while block := file.read(BLOCK):
            yield (np.frombuffer(block, np.int64) + base).tobytes() if offsets else block
