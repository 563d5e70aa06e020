"""torch's random numbers. A process has one generator per device, so only one thread at a time may seed and use it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

DRAWING = threading.RLock()
"""Lock for seeding and using torch's global generators, so that runs in two threads have the same results as alone."""


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
