"""torch's deterministic mode on GPUs, in which the same computation has the same bits at each repetition."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Literal

import torch

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
