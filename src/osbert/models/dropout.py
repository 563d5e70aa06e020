"""Dropout: torch's own, with cheaper random numbers on the CPU.

torch makes a random double for each number on the CPU, which takes a tenth of a small model's training. Here one
64-bit draw serves four numbers, 16 bits each. The share dropped is rounded to 1/65536, and the rest is scaled by
exactly that, so the mean is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = 2**16
LOWEST = -(2**63)


class Dropout(nn.Module):
    """Drops a `share` of the numbers in training and scales the others up; does nothing in evaluation."""

    def __init__(self, share: float) -> None:
        """Drop `share`, at least 0 and below 1."""
        super().__init__()
        self.share = share

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` (...) with a share of them 0 in training."""
        return dropout(values, self.share) if self.training else values


def dropout(values: Tensor, share: float) -> Tensor:
    """Return `values` (...) with a random `share` of them 0 and the others scaled up."""
    if not share:
        return values
    if values.device.type != "cpu":
        return functional.dropout(values, share)
    dropped = min(round(share * LEVELS), LEVELS - 1)
    draws = torch.empty((values.numel() + 3) // 4, dtype=torch.int64).random_(LOWEST, None)
    levels = draws.view(torch.int16)[: values.numel()].view(values.shape)  # uniform over -2^15 .. 2^15 - 1
    kept = (levels >= dropped - LEVELS // 2).to(values.dtype)
    return values * kept.mul_(LEVELS / (LEVELS - dropped))
