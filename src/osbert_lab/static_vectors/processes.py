"""A round on several cores: all processes update shared tables without locks (Hogwild, as word2vec's threads do)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from osbert.errors import UserError
from osbert.processes import end_with_parent, holding_interrupts
from osbert_lab.static_vectors.learners import AnyLearner, Totals


@contextmanager
def one_round(learner: AnyLearner, tables: Tensor, path: Path, workers: int) -> Iterator[Callable[[int], Totals]]:
    """Yield a function that learns round `number`, in this process or in several.

    Raises UserError if a process dies.
    """
    with ExitStack() as held:
        threads = torch.get_num_threads()
        held.callback(torch.set_num_threads, threads)
        torch.set_num_threads(1)  # the products are too small to be cut further
        if workers == 1:
            yield lambda number: learner.learn(tables, number, 0, 1)
            return
        pool = held.enter_context(
            ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(learner, path))
        )

        def learn(number: int) -> Totals:
            try:
                with holding_interrupts():  # the first jobs start the processes
                    waiting = [pool.submit(_learn, number, part, workers) for part in range(workers)]
                return sum((future.result() for future in waiting), Totals())
            except BrokenProcessPool as error:
                raise UserError(
                    "A worker process was killed, most often because memory ran out. Give the same command again "
                    f"with fewer --workers (now {workers}); it continues from the last round.",
                    code="out-of-memory",
                ) from error

        yield learn


_learner: AnyLearner  # of a process that learns, set once when it begins
_tables: Tensor


def _begin(learner: AnyLearner, path: Path) -> None:
    global _learner, _tables
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    end_with_parent()
    torch.set_num_threads(1)
    # Mapped read-write: an update is visible in all processes.
    _learner, _tables = learner, torch.from_numpy(np.load(path, mmap_mode="r+"))


def _learn(number: int, part: int, parts: int) -> Totals:
    return _learner.learn(_tables, number, part, parts)
