"""torch's random numbers and new layers, and its deterministic mode.

A process has one generator per device, so one thread at a time may use it. In the deterministic mode of GPUs the same
computation has the same bits at each repetition.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

DRAWING = threading.RLock()
"""Lock for seeding and using torch's global generators, so that runs in two threads have the same results as alone."""


FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn)
"""The functions by which torch's layers make their weights, in the global default dtype unless one is given."""


class SinglePrecision(TorchFunctionMode):
    """A mode in which new layers are float32, whatever torch.set_default_dtype says.

    The global default stays as it is: other threads would see a change of it.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if function in FACTORIES and named.get("dtype") is None:
            named["dtype"] = torch.float32
        return function(*args, **named)


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Make new layers in float32 inside the block, alone with torch's global generator, whose state is restored."""
    with DRAWING, SinglePrecision(), torch.random.fork_rng(devices=[]):
        yield


@contextlib.contextmanager
def fix_seed(seed: int) -> Iterator[None]:
    """Make new layers inside the block as `drawing`, from a seed."""
    with drawing():
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def hold_generator(generator: torch.Generator) -> Iterator[torch.Generator]:
    """Hold one of torch's own generators inside the block, and restore the caller's state afterwards."""
    with DRAWING:
        before = generator.get_state()
        try:
            yield generator
        finally:
            generator.set_state(before)


# cuBLAS reads it at its first use; without it recurrent layers and some products are not deterministic.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextlib.contextmanager
def deterministic(others: Literal["warn", "error"]) -> Iterator[None]:
    """Make torch choose the deterministic variants of the operators called inside.

    `others`: what an operator without one does. Attention has one for "error" alone.
    """
    aids: Any = torch.utils.deterministic
    before = torch.get_deterministic_debug_mode(), aids.fill_uninitialized_memory
    torch.set_deterministic_debug_mode(others)
    aids.fill_uninitialized_memory = False  # that would write into every new tensor, to find mistakes
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        aids.fill_uninitialized_memory = before[1]
