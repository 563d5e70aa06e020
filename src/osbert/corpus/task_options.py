"""Settings of work in tasks: the executor, the number of tasks, and what a cluster needs to know."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from osbert.errors import UserError
from osbert.extensions import require_extension

Executor = Literal["local", "slurm", "ray"]

EXECUTORS = "osbert.executors"
"""The group of the functions that do work in tasks, on a corpus and on rows."""
ARRAY = 1001
"""Most tasks of one Slurm job (the default of MaxArraySize)."""


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """How work is divided into tasks, and what runs them."""

    executor: Executor = "local"
    """The executor of the tasks."""
    tasks: int = 0
    """Number of tasks that the work is divided into; 0: chosen by the kind of work."""
    workers: int = 1
    """Number of concurrent tasks; 0 on a cluster: as many as fit."""
    partition: str = ""
    """Slurm: the partition to run in."""
    time: str = "24:00:00"
    """Slurm: time limit of a task."""

    def check(self) -> None:
        """Raise UserError if a library or a required option is missing, or if a number is out of range."""
        if self.tasks < 0:
            raise UserError(f"--tasks must be 1 or more, not {self.tasks}.", code="invalid-value")
        if self.executor == "slurm" and not self.partition:
            raise UserError(
                "--executor slurm needs --partition, the Slurm partition of the jobs.", code="missing-option"
            )
        if self.executor == "slurm" and self.tasks > ARRAY:
            raise UserError(
                f"--tasks must be at most {ARRAY:,} with Slurm, its longest job array.", code="invalid-value"
            )
        require_extension(EXECUTORS, "rows", "--executor")
        for library in ("datatrove", "xxhash", *(["ray"] if self.executor == "ray" else [])):
            try:
                __import__(library)
            except ImportError as error:
                extra = "ray" if library == "ray" else "scale"
                raise UserError(
                    f'--executor {self.executor} needs the library {library}: pip install "osbert[{extra}]"',
                    code="missing-library",
                ) from error


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """How work is distributed over processes or machines."""

    executor: Executor | None = None
    """Divide the work into independent tasks, run by datatrove (pip install "osbert[scale]"): in local processes, as
    Slurm jobs, or on Ray. A task that is killed is repeated alone; finished tasks are never repeated."""
    workers: int | None = None
    """With --executor: parallel tasks; by default one per core, and on a cluster as many as it has room for."""
    tasks: int = 0
    """With --executor: the number of tasks; by default one per input file of a corpus, one per worker for the rows of a
    file (at most 64 of both), and one for each analysis of a model."""
    partition: str = ""
    """With --executor slurm: the partition."""
    time: str = ""
    """With --executor slurm: the time limit of a task; by default 24:00:00."""

    def plan(self) -> TaskPlan | None:
        """Return how the work is distributed; None without an executor. Raises UserError for conflicting settings."""
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers must be 1 or more, not {self.workers}.", code="invalid-value")
        if self.executor is None:
            if given := self.needing_executor():
                named = " and ".join(f"--{name.replace('_', '-')}" for name in given)
                needs = "needs" if len(given) == 1 else "need"
                raise UserError(f"{named} {needs} --executor.", code="options-exclude-each-other")
            return None
        if self.executor != "slurm" and (self.partition or self.time):
            raise UserError(
                "--partition and --time apply to Slurm only. Remove them, or choose --executor slurm (not "
                f"{self.executor}).",
                code="options-exclude-each-other",
            )
        workers = self.workers or (cores() if self.executor == "local" else 0)
        limit = {"time": self.time} if self.time else {}
        plan = TaskPlan(executor=self.executor, tasks=self.tasks, workers=workers, partition=self.partition, **limit)
        plan.check()
        return plan

    def needing_executor(self) -> list[str]:
        """Return the names of the settings that are given and have no meaning without an executor."""
        return [name for name in ("workers", "tasks", "partition", "time") if getattr(self, name)]


class PendingTasks(Exception):
    """The tasks were submitted to a cluster that has not finished them yet."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
