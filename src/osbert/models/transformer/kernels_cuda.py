"""The kernel for GPUs: flash attention over flat tokens, all sequences of a batch in one call, with optional dropout.

torch's `torch.nn.attention.varlen.varlen_attn` has no dropout. Its gradient of queries is not deterministic for
sequences longer than a tile (128 tokens), since the order of summation varies. So this module calls the operator below
it with torch's deterministic gradient: a resumed run ends in the same weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from osbert.models.transformer.layout import Layout

WIDEST = 256
"""Widest head that flash attention supports."""


def fits(query: Tensor, layout: Layout) -> bool:
    """Return whether `varlen` can attend with these queries (N, H, K).

    Conditions: bf16 or fp16; the order is 0 everywhere or 0, 1, 2, ...; no unseen tokens; no bias. If only some tokens
    have queries, there must be neither an order nor a window, since flash attention takes the queries for the last
    tokens of their sequence.
    """
    # Flash attention needs half precision and a head width that is a multiple of 8.
    halves = query.dtype in (torch.bfloat16, torch.float16)
    width = query.shape[-1]
    ordered, local = layout.order is not None, layout.window is not None
    plain = (layout.causal or not ordered) and (layout.consecutive or not local)
    plain = plain and layout.unseen is None and layout.biases is None
    return halves and width % 8 == 0 and width <= WIDEST and plain and (layout.counts is None or not (ordered or local))


def varlen(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend in all sequences at once, if `fits`. Nothing here makes the host wait for the GPU."""
    starts = layout.bounds if layout.firsts is None else layout.firsts
    sizes = (max(layout.queries), max(layout.lengths), dropout, layout.causal)
    # Causal local layers see the window to the left only.
    window = {}
    if layout.window is not None:
        window = {"window_size_left": layout.window, "window_size_right": 0 if layout.causal else layout.window}
    mixed: Tensor = _Attention.apply(query, key, value, starts, layout.bounds, sizes, window)
    return mixed


class _Attention(torch.autograd.Function):
    """Flash attention with a deterministic gradient."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *columns, sizes, window = given
        # Arguments: q, k, v, bounds of queries, bounds of keys, longest of each, dropout, causal, return_debug_mask.
        found = torch.ops.aten._flash_attention_forward(*columns, *sizes, False, **window)
        mixed, normalizers, random, unused, _ = found
        # `random` is the state of the generator: the backward pass draws the same dropout again.
        ctx.save_for_backward(*columns, mixed, normalizers, random, unused)
        ctx.sizes, ctx.window = sizes, window
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *towards: Any) -> Any:
        query, key, value, starts, bounds, mixed, normalizers, random, unused = ctx.saved_tensors
        columns = (query, key, value, mixed, normalizers, starts, bounds)
        with _deterministic():
            gradients = torch.ops.aten._flash_attention_backward(
                towards[0], *columns, *ctx.sizes, random, unused, **ctx.window
            )
        # No gradients of the bounds, the sizes and the window.
        return *gradients, None, None, None, None


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    """Make torch choose deterministic variants of the operators called inside."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
