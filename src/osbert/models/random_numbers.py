"""torch's random numbers, of which a process has one sequence a device: one thread at a time seeds it and draws."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

DRAWING = threading.RLock()
"""Held by whoever seeds torch's own generators and draws from them, so that runs in two threads give what each gives
alone."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers inside the block, and restore the caller's state afterwards."""
    with DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def restored(generator: torch.Generator) -> Iterator[torch.Generator]:
    """Hold one of torch's own generators inside the block, and restore the caller's state afterwards."""
    with DRAWING:
        before = generator.get_state()
        try:
            yield generator
        finally:
            generator.set_state(before)
