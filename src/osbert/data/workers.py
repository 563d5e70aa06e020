"""Processes that make a loader's steps ahead of time: the same steps, in the same order, to the last bit.

Each of W workers walks through the whole stream, which is the cheap part, and makes every W-th step: noise, labels and
tensors. A worker is ahead by as much as its pipe holds; a larger step waits until it is needed.
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

DEATHS = 3
"""So many deaths of workers over one step end the run."""


class StepSource(Protocol):
    """A loader whose work can be parted; it is pickled into each worker."""

    def draws(self, cursor: Cursor) -> Iterator[Any]:
        """Yield the examples of each step from `cursor` on."""
        ...

    @property
    def together(self) -> int:
        """How many steps are best made at a time."""
        ...

    def make(self, draws: Sequence[Any]) -> list[Step]:
        """Return the steps of some draws."""
        ...


def made_by_workers(
    source: StepSource, cursor: Cursor, *, workers: int, notices: list[str]
) -> Generator[Step, None, None]:
    """Yield the steps of `source` from `cursor` on, made by so many processes; close the generator to end them.

    A worker that dies is reported in `notices`, and a new one does its work again. Raises UserError when several
    die over the same step, and what a worker raised.
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
                        f"Processes of the loader died {DEATHS} times over one step, as they do when memory is short. "
                        "Use fewer (data.workers), or none with data.workers = 0.",
                        code="out-of-memory",
                    )
                crew[turn].end()
                crew[turn] = _Worker(source, cursor, turn=0, workers=workers)
            deaths, cursor = 0, step.cursor
            yield step
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that makes the steps `turn`, `turn` + `workers` and so on, counted from a cursor."""

    def __init__(self, source: StepSource, cursor: Cursor, *, turn: int, workers: int) -> None:
        # Not forked: this process has threads, and maybe a GPU. What is sent is pickled here and not by the queues of
        # multiprocessing, for which torch would put every tensor into shared memory.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_work, args=(theirs, source, cursor, turn, workers), name="osbert-loader", daemon=True
        )
        self.process.start()
        theirs.close()

    def step(self) -> Step | None:
        """Return its next step, None if it has died; raise what it raised."""
        try:
            found = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def death(self) -> str:
        """Return in words how the process died."""
        self.process.join(timeout=5)
        return f"(PID {self.process.pid}) died with status {self.process.exitcode}"

    def end(self) -> None:
        """End the process."""
        self.connection.close()
        self.process.kill()
        self.process.join()


def _work(connection: Connection, source: StepSource, cursor: Cursor, turn: int, workers: int) -> None:
    """Send the steps of one worker, or the error that ends them, until nobody listens any more."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the trainer decides when to stop
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):
        try:
            draws = itertools.islice(source.draws(cursor), turn, None, workers)
            while some := list(itertools.islice(draws, source.together)):
                for step in source.make(some):
                    connection.send_bytes(pickle.dumps(step))
        except BrokenPipeError:
            raise
        except Exception as error:
            connection.send_bytes(pickle.dumps(error))
