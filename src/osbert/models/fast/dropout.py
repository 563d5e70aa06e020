"""Dropout: torch's own, with cheaper random numbers on the CPU.

torch makes a random double for each number on the CPU, which takes a tenth of a small model's training. Here one
64-bit draw serves four numbers, 16 bits each. The share dropped is rounded to 1/65536, and the rest is scaled by
exactly that, so the mean is kept (in bf16 the factor, 1/0.9 = 1.1111 for a share of 0.1, is rounded to 1.1094, as
torch's own is).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = 2**16


class Dropout(nn.Module):
    """Drops a `share` of the numbers in training and scales the others up; does nothing in evaluation."""

    def __init__(self, share: float) -> None:
        """Drop `share`, at least 0 and below 1."""
        super().__init__()
        self.share = share

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` (...) with a share of them 0 in training."""
        return dropout(values, self.share) if self.training else values


class Chances:
    """Draws on the CPU, for any number, whether it is dropped: a `share` of them, rounded to 1/65536."""

    def __init__(self, share: float) -> None:
        """Drop `share`, at least 0 and below 1."""
        self.dropped = min(round(share * LEVELS), LEVELS - 1)

    def draw(self, shape: Sequence[int]) -> Tensor:
        """Return levels of `shape`, int16 and even over all its values; torch's global generator decides them."""
        count = math.prod(shape)
        seed = int(torch.empty((), dtype=torch.int64).random_())
        draws = np.random.SFC64(seed).random_raw((count + 3) // 4)  # uint64
        return torch.from_numpy(draws.view(np.int16)[:count]).view(shape)

    def factors(self, levels: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what numbers with these `levels` are multiplied by: 0, or what makes up for those dropped."""
        kept = torch.empty(levels.shape, dtype=dtype)
        # Written as numbers at once: a comparison into booleans, made numbers afterwards, takes ten times longer.
        return torch.ge(levels, self.dropped - LEVELS // 2, out=kept).mul_(LEVELS / (LEVELS - self.dropped))


class _Dropped(torch.autograd.Function):
    """Keeps for the way back what was drawn, two bytes a number, in place of the factors and the values."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        values, chances = given
        levels = chances.draw(values.shape)
        ctx.save_for_backward(levels)
        ctx.chances = chances
        return chances.factors(levels, values.dtype).mul_(values)

    @staticmethod
    def backward(ctx: Any, *towards: Any) -> Any:
        [levels] = ctx.saved_tensors
        return ctx.chances.factors(levels, towards[0].dtype).mul_(towards[0]), None


def dropout(values: Tensor, share: float) -> Tensor:
    """Return `values` (...) with a random `share` of them 0 and the others scaled up."""
    if not share:
        return values
    if values.device.type != "cpu" or torch.compiler.is_compiling():  # there torch's own is fused with its neighbours
        return functional.dropout(values, share)
    found: Tensor = _Dropped.apply(values, Chances(share))
    return found
