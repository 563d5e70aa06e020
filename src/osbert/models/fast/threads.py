"""CPU threads: one thread does small work, if waking others takes longer than the work.

That is the case if threads sleep between tasks (OMP_WAIT_POLICY=PASSIVE), as they should beside other processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial

import torch

from osbert.processes import VARIABLE

SLEEPING = os.environ.get(VARIABLE, "").upper() == "PASSIVE"

ALONE = 2**22 if SLEEPING else 0
"""Most multiplications of a product for which one thread is faster than several; 0: always use several."""

ONE_THREAD_TOKENS = 2**10 if SLEEPING else 0
"""Most tokens of a batch for which one thread is faster at everything but products; 0: always use several."""

# Thread-local, so that each thread remembers its own full number.
_free = threading.local()


_remarks: list[str] = []


def threads_for(products: int) -> AbstractContextManager[None]:
    """Use one thread inside the block for at most ALONE multiplications, else all threads."""
    # Inside `threads_for_batch` torch is set to 1 thread; `_free.threads` remembers the full number.
    threads = max(torch.get_num_threads(), getattr(_free, "threads", 1))
    return _working(1 if products <= ALONE else threads)


@contextmanager
def threads_for_batch(tokens: int) -> Iterator[None]:
    """Use one thread inside the block for a small batch, except for large products (`threads_for`)."""
    before = getattr(_free, "threads", 1)
    # Remember the full number before it is reduced, for large products inside the block.
    _free.threads = max(torch.get_num_threads(), before)
    try:
        with _working(1 if tokens <= ONE_THREAD_TOKENS else torch.get_num_threads()):
            yield
    finally:
        _free.threads = before


@cache
def compute_alone_after_fork() -> None:
    """Let forked children compute on one thread: OpenMP's others do not survive a fork, and are waited for."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def spin_remark() -> str:
    """Return, once in a process, a remark if threads spin while they wait on a busy machine; "" otherwise."""
    if SLEEPING or torch.get_num_threads() == 1 or not hasattr(os, "getloadavg"):  # Windows has no load average
        return ""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores / 2 or _remarks:
        return ""
    _remarks.append(
        f"The machine is busy (a load of {load:.1f} on {cores} cores), and torch's threads spin while they wait: "
        "training may take several times as long. Import osbert before torch, or set "
        f"{VARIABLE}=PASSIVE before Python starts."
    )
    return _remarks[0]


@contextmanager
def _working(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    # set_num_threads is not free: skip it if nothing changes.
    if threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
