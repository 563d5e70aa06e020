"""The kernel for GPUs: flash attention over flat tokens, all sequences of a batch in one call, with dropout or without.

torch offers it as `torch.nn.attention.varlen.varlen_attn`, which knows no dropout; the operator beneath it does.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from osbert.models.layout import Layout

WIDEST = 256
"""The widest head that flash attention takes."""


def fits(query: Tensor, layout: Layout) -> bool:
    """Return whether `varlen` can attend with these queries (N, H, K): bf16 or fp16, an order of 0s or 0, 1, 2..."""
    halves = query.dtype in (torch.bfloat16, torch.float16)
    width = query.shape[-1]
    return halves and width % 8 == 0 and width <= WIDEST and (layout.order is None or layout.causal)


def varlen(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend in all sequences at once, where `fits`. Nothing here makes the host wait for the GPU."""
    bounds, longest = layout.bounds, max(layout.lengths)
    starts, most = bounds, longest
    if layout.read is not None:
        starts = torch.searchsorted(layout.read, bounds).int()
        most = max(layout.queries)
    if not dropout:
        from torch.nn.attention.varlen import varlen_attn

        window = (-1, 0) if layout.causal else (-1, -1)  # tokens seen before and after a query; -1 for all
        mixed = varlen_attn(query, key, value, starts, bounds, most, longest, window_size=window)
    else:
        mixed, *_ = torch.ops.aten._flash_attention_forward(
            query, key, value, starts, bounds, most, longest, dropout, layout.causal, False
        )
    return cast(Tensor, mixed)
