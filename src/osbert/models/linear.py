"""Linear layers for flat tokens, of which no two batches have the same number.

In bf16 the CPU's products come from oneDNN, which compiles a kernel for each new shape and keeps a thousand of them:
with as many shapes as batches that is slow, and takes gigabytes. So there, and only inside of the product, rows of 0
are added up to a round number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS = 128
"""The number of rows is made a multiple of this."""


class Linear(nn.Linear):
    """torch's linear layer, by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, outputs) from (N, inputs)."""
        return linear(input, self.weight, self.bias)


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return (N, outputs) from `rows` (N, inputs), `weight` (outputs, inputs) and `bias` (outputs,)."""
    precision = precision_of(rows)
    if not compiled(rows.device.type, precision):
        return functional.linear(rows, weight, bias)
    return functional.linear(rounded(rows.to(precision)), weight, bias)[: len(rows)]


def precision_of(rows: Tensor) -> torch.dtype:
    """Return the precision in which products with `rows` are made: autocast's, else their own."""
    kind = rows.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype


def rounded(rows: Tensor) -> Tensor:
    """Return `rows` (N, D) with rows of 0 behind them where their products are compiled, else as they are."""
    missing = -len(rows) % ROWS if compiled(rows.device.type, rows.dtype) else 0
    return functional.pad(rows, (0, 0, 0, missing)) if missing else rows


def compiled(device: str, precision: torch.dtype) -> bool:
    """Return whether products are compiled for their shapes on this type of device."""
    return device == "cpu" and precision == torch.bfloat16
