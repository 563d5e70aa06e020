"""Processes that make a loader's steps ahead of time: the same steps in the same order, bit for bit.

Each of W workers plans the whole stream, which is cheap, and makes every W-th step: noise, labels and tensors. A worker
is ahead by as much as its pipe buffers; sending a larger step blocks until it is received.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import pickle
import signal
from collections.abc import Generator, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

from osbert.data.step import Cursor, Step
from osbert.errors import UserError
from osbert.processes import holding_interrupts

DEATHS = 3
"""Number of workers' deaths at one step that ends the run."""


class StepSource(Protocol):
    """A loader whose work can be divided. It is pickled into each worker."""

    def draws(self, cursor: Cursor) -> Iterator[Any]:
        """Yield the plan of each step from `cursor` on."""

    @property
    def together(self) -> int:
        """The number of steps to make together."""

    def make(self, draws: Sequence[Any]) -> list[Step]:
        """Return the steps of some plans."""


def make_in_workers(
    source: StepSource, cursor: Cursor, *, workers: int, notices: list[str]
) -> Generator[Step, None, None]:
    """Yield the steps of `source` from `cursor` on, made by `workers` processes. Close the generator to end them.

    If a worker dies, `notices` gets a message and a new worker repeats its work. Raises UserError if several workers
    die at the same step, and re-raises the exceptions of workers.
    """
    crew = [_Worker(source, cursor, turn=turn, workers=workers) for turn in range(workers)]
    deaths = 0
    try:
        for turn in itertools.cycle(range(workers)):
            while (step := crew[turn].step()) is None:
                deaths += 1
                notices.append(f"A process of the loader {crew[turn].death()}; a new one does its work again.")
                if deaths == DEATHS:
                    raise UserError(
                        f"The loader's worker processes died {DEATHS} times in one step, most likely because "
                        "memory is short. Use fewer (data.workers), or none with data.workers = 0.",
                        code="out-of-memory",
                    )
                crew[turn].end()
                # `cursor` is that of the step that is missing, so the new worker begins with turn 0; the other
                # workers' turns are counted from an older cursor but fall on the same steps.
                crew[turn] = _Worker(source, cursor, turn=0, workers=workers)
            deaths, cursor = 0, step.cursor
            yield step
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that makes the steps `turn`, `turn` + `workers`, ..., counted from a cursor."""

    def __init__(self, source: StepSource, cursor: Cursor, *, turn: int, workers: int) -> None:
        # Not forked: this process has threads, and maybe a GPU. What is sent is pickled here and not by the queues of
        # multiprocessing, for which torch would put every tensor into shared memory.
        context = multiprocessing.get_context("spawn")
        self.connection, child_connection = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_work, args=(child_connection, source, cursor, turn, workers), name="osbert-loader", daemon=True
        )
        with holding_interrupts():
            self.process.start()
        # With this copy open, the end of the child would not be seen as EOF.
        child_connection.close()

    def step(self) -> Step | None:
        """Return its next step, None if it has died. Re-raises an exception of the process."""
        try:
            message = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        if isinstance(message, Exception):
            raise message
        return message

    def death(self) -> str:
        """Describe how the process died: its PID and exit status."""
        self.process.join(timeout=5)
        return f"(PID {self.process.pid}) died with status {self.process.exitcode}"

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self.connection.close()
        self.process.kill()
        self.process.join()


def _work(connection: Connection, source: StepSource, cursor: Cursor, turn: int, workers: int) -> None:
    """Send the steps of one worker, or the exception that ends them, until the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the trainer decides when to stop
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):
        try:
            # Skipped steps are only planned, not made.
            draws = itertools.islice(source.draws(cursor), turn, None, workers)
            while some := list(itertools.islice(draws, source.together)):
                for step in source.make(some):
                    connection.send_bytes(pickle.dumps(step))
        except BrokenPipeError:
            raise
        except Exception as error:
            connection.send_bytes(pickle.dumps(error))
