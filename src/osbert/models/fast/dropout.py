"""Dropout: torch's own, with cheaper random numbers on the CPU.

On the CPU torch generates a random double for each element, which takes a tenth of a small model's training time. Here
one 64-bit random number serves four elements, 16 bits each. The probability is rounded to a multiple of 1/65536, and
kept elements are scaled by exactly the inverse, so the mean is preserved (in bf16 the factor for 0.1, 1/0.9 = 1.1111,
is rounded to 1.1094, as in torch).
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
    """Dropout with probability `probability` in training; the identity in evaluation."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` (...), in training with dropout."""
        return dropout(values, self.probability) if self.training else values


class Chances:
    """Random decisions on the CPU which elements to drop, with probability `probability` rounded to 1/65536."""

    def __init__(self, probability: float) -> None:
        dropped = min(round(probability * LEVELS), LEVELS - 1)
        self.least = dropped - LEVELS // 2
        self.scale = LEVELS / (LEVELS - dropped)

    def draw(self, shape: Sequence[int]) -> Tensor:
        """Return uniformly distributed int16 of `shape`, seeded from torch's global generator."""
        count = math.prod(shape)
        seed = int(torch.empty((), dtype=torch.int64).random_())
        # The raw 64-bit stream, reinterpreted as four int16: no conversion of any element.
        draws = np.random.SFC64(seed).random_raw((count + 3) // 4)  # uint64
        return torch.from_numpy(draws.view(np.int16)[:count]).view(shape)

    def keep_mask(self, levels: Tensor, dtype: torch.dtype) -> Tensor:
        """Return 1 for the elements with these `levels` that are kept, else 0."""
        mask = torch.empty(levels.shape, dtype=dtype)
        # The comparison writes floats directly: booleans converted to floats take ten times longer.
        return torch.ge(levels, self.least, out=mask)

    def factors(self, levels: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the factors of elements with these `levels`: 0, or 1 / (1 - probability)."""
        if dtype.itemsize != levels.itemsize:
            return self.keep_mask(levels, dtype).mul_(self.scale)
        # As the bits of a half precision: comparing and multiplying within int16 takes half the time.
        bits = torch.tensor(self.scale, dtype=dtype).view(torch.int16)
        return self.keep_mask(levels, torch.int16).mul_(bits).view(dtype)


class _Dropped(torch.autograd.Function):
    """Saves the random levels for the backward pass, two bytes per element, instead of factors and values."""

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


def dropout(values: Tensor, probability: float) -> Tensor:
    """Return `values` (...), each set to 0 with probability `probability`, the others scaled by 1 / (1 - share).

    Srivastava et al. (2014), with the scale in training, so that nothing is scaled at inference.
    """
    if not probability:
        return values
    if values.device.type != "cpu" or torch.compiler.is_compiling():  # there torch fuses its own dropout
        return functional.dropout(values, probability)
    output: Tensor = _Dropped.apply(values, Chances(probability))
    return output
