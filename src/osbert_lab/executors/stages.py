"""Runs tasks with datatrove: on this machine, with Slurm, or on a Ray cluster.

On this machine each task is a process; one that is killed is restarted, and the others continue. Slurm and Ray use
datatrove's executors; to continue after their tasks have finished, give the same command again.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from osbert.corpus.task_options import PendingTasks, TaskPlan
from osbert.errors import UserError
from osbert.files import write_json
from osbert.guarded import read_json
from osbert.processes import end_with_parent, holding_interrupts

TRIES = 3
"""Most attempts at a task that is killed each time."""
SUBMITTED = "submitted.json"
"""File with the ids of the submitted Slurm jobs."""
MOST_TASKS = 64
"""Most tasks if their number is not given."""


@dataclass(frozen=True)
class ExecutorStage:
    """Steps that `tasks` tasks run on their parts of the data, after all tasks of the previous stage.

    `sizes`: the size of each task, for progress; none where a task takes less time than the start of its process.
    """

    name: str
    steps: Sequence[Any]
    tasks: int
    sizes: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class TaskFolders:
    """Where stages keep what they know: `tasks`, of this division of the work, and `work`, of all divisions of it."""

    tasks: Path
    work: Path


def run_stages(
    stages: Sequence[ExecutorStage], plan: TaskPlan, folders: TaskFolders, report: Callable[[int, int], None]
) -> None:
    """Run the unfinished tasks of stages, one stage after the other.

    `report`: called on this machine with the finished and the whole size of a stage after each of its tasks. Raises
    UserError if a task fails, and PendingTasks while a cluster is working on them.
    """
    executors = [_executor(plan, stage, folders.tasks / "logs" / stage.name) for stage in stages]
    if plan.executor == "local":
        for stage, executor in zip(stages, executors):
            together = 1 if stage.sizes else -(-stage.tasks // plan.workers)
            _run_here(executor, plan.workers, together=together, finished=_counter(stage, report))
    elif unfinished := [executor for executor in executors if executor.get_incomplete_ranks()]:
        _refuse_running(folders.work / SUBMITTED)
        # Each stage depends on the one before it, so running the last one submits all.
        for before, executor in pairwise(unfinished):
            executor.depends = before
        unfinished[-1].run()
        if plan.executor == "slurm":
            write_json(folders.work / SUBMITTED, [str(executor.job_id) for executor in unfinished])
        if any(executor.get_incomplete_ranks() for executor in unfinished):
            raise PendingTasks


def _refuse_running(path: Path) -> None:
    """Raise PendingTasks while Slurm runs jobs of an earlier command: a task must not run twice at a time."""
    if not path.is_file():
        return
    jobs = ",".join(read_json(path))
    try:
        queue = subprocess.run(["squeue", "--noheader", "--jobs", jobs], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(
            f"squeue cannot be run ({error.strerror}), so whether the Slurm jobs {jobs} have ended is unknown. "
            f"When they have, remove {path} and give the same command again.",
            code="slurm-unavailable",
        ) from error
    if queue.stdout.strip():  # of jobs that have ended long ago it says nothing, or that it does not know them
        raise PendingTasks


def task_folder(folder: Path, rank: int) -> Path:
    """Return the folder of a task."""
    return folder / f"task-{rank:05d}"


def _executor(plan: TaskPlan, stage: ExecutorStage, logs: Path) -> Any:
    if plan.executor == "slurm":
        from datatrove.executor.slurm import SlurmPipelineExecutor

        inside = Path(sys.prefix) / "bin" / "activate"
        return SlurmPipelineExecutor(
            stage.steps,
            tasks=stage.tasks,
            time=plan.time,
            partition=plan.partition,
            qos="",
            workers=plan.workers or -1,
            job_name=f"osbert-{stage.name}",
            venv_path=str(inside) if inside.is_file() else None,
            logging_dir=str(logs.absolute()),
        )
    if plan.executor == "ray":
        from datatrove.executor.ray import RayPipelineExecutor

        return RayPipelineExecutor(stage.steps, tasks=stage.tasks, workers=plan.workers or -1, logging_dir=str(logs))
    from datatrove.executor.local import LocalPipelineExecutor

    return LocalPipelineExecutor(stage.steps, tasks=stage.tasks, logging_dir=str(logs))


def _counter(stage: ExecutorStage, report: Callable[[int, int], None]) -> Callable[[int], None]:
    """Return a function that counts a task, by its rank, and reports the size that is done."""
    sizes = stage.sizes if any(stage.sizes) else [1] * stage.tasks
    done: list[int] = []

    def count_task(rank: int) -> None:
        done.append(sizes[rank])
        report(sum(done), sum(sizes))

    return count_task


def _run_here(executor: Any, workers: int, *, together: int, finished: Callable[[int], None]) -> None:
    """Run the unfinished tasks, `together` in each process, at most `workers` processes at a time.

    Killed processes are restarted. Raises UserError for failed tasks once the running ones have ended.
    """
    ranks: list[int] = executor.get_incomplete_ranks()
    waiting = deque(ranks[start : start + together] for start in range(0, len(ranks), together))
    running: dict[Any, tuple[list[int], BaseProcess, Connection]] = {}
    tries: Counter[int] = Counter()
    failures: list[str] = []
    context: Any = multiprocessing.get_context("spawn")
    try:
        while (waiting and not failures) or running:
            while waiting and not failures and len(running) < workers:
                ranks = waiting.popleft()
                receiving, sending = context.Pipe(duplex=False)
                process = context.Process(target=_task, args=(executor, ranks, sending))
                with holding_interrupts():
                    process.start()
                # The parent closes its copy: recv then raises EOFError if the child dies.
                sending.close()
                running[process.sentinel] = ranks, process, receiving
            for sentinel in wait(list(running)):
                ranks, process, receiving = running.pop(sentinel)
                process.join()
                left = [rank for rank in ranks if not executor.is_rank_completed(rank)]
                for rank in set(ranks) - set(left):
                    finished(rank)
                # Only the first unfinished task of a process was running when it ended.
                tries.update(left[:1])
                # A negative exit code is a signal, such as that of the out-of-memory killer.
                if left and (process.exitcode or 0) < 0 and tries[left[0]] < TRIES:
                    waiting.appendleft(left)
                elif left:
                    failures.append(_receive_error(receiving) or _describe_kill(left[0], process.exitcode))
                receiving.close()
    finally:
        for _, process, _ in running.values():
            process.terminate()
            process.join()
    if failures:
        raise UserError("\n".join(dict.fromkeys(failures)), code="child-failed")


def _describe_kill(rank: int, exitcode: int | None) -> str:
    return (
        f"Task {rank} was ended {TRIES} times from outside (exit {exitcode}), most often for want of memory. What "
        "other tasks have finished is kept: give the same command again with fewer --workers, or more --tasks."
    )


def _receive_error(receiving: Connection) -> str:
    with suppress(EOFError):
        if receiving.poll():
            return str(receiving.recv())
    return ""


def _task(executor: Any, ranks: Sequence[int], sending: Connection) -> None:
    """Run tasks in this child process, which ends with its parent. Errors are sent to the parent."""
    end_with_parent()
    log = Path(executor.logging_dir.path) / f"task-{ranks[0]:05d}.err"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as file, redirect_stderr(file):  # datatrove writes its own account there
        try:
            for rank in ranks:
                executor._run_for_rank(rank, local_rank=1)
        except UserError as error:
            sending.send(str(error))
        except Exception as error:
            sending.send(f"Task {rank} failed: {error!r}. The whole account is in {log}.")
