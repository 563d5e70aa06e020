"""Threads of the CPU: small work is done by one of them, where waking another takes longer than the work.

That is so where threads sleep between their tasks (OMP_WAIT_POLICY=PASSIVE), as they should beside other processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SLEEPING = os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"

ALONE = 2**22 if SLEEPING else 0
"""The most multiplications of a product that one thread does faster than several."""

FEW = 2**10 if SLEEPING else 0
"""The most tokens for which one thread does all but the products faster than several."""

_free = threading.local()


@contextmanager
def threads_for(products: int) -> Iterator[None]:
    """Work in one thread while there are at most ALONE multiplications to do, else in as many as there may be."""
    threads = max(torch.get_num_threads(), getattr(_free, "threads", 1))
    with _working(1 if products <= ALONE else threads):
        yield


@contextmanager
def threads_for_batch(tokens: int) -> Iterator[None]:
    """Work in one thread while a batch has at most FEW tokens, apart from what `threads_for` finds large enough."""
    before = getattr(_free, "threads", 1)
    _free.threads = max(torch.get_num_threads(), before)
    try:
        with _working(1 if tokens <= FEW else torch.get_num_threads()):
            yield
    finally:
        _free.threads = before


@contextmanager
def _working(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
