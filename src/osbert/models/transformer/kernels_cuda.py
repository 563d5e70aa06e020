"""The kernel for GPUs: flash attention over flat tokens, all sequences of a batch in one call, with dropout or without.

torch's `torch.nn.attention.varlen.varlen_attn` knows no dropout, and the gradient of its queries is summed in an order
that changes from run to run where a sequence is longer than one of its tiles (128 tokens). So the operator beneath it
is called here, with torch's deterministic gradient: a run that is resumed ends in the same weights.
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
"""The widest head that flash attention takes."""


def fits(query: Tensor, layout: Layout) -> bool:
    """Return whether `varlen` can attend with these queries (N, H, K).

    They must be bf16 or fp16, the order 0 everywhere or 0, 1, 2, ..., all tokens seen, and no bias added. Where some
    tokens alone have queries there must be neither an order nor a window, since flash attention takes the queries for
    the last tokens of their sequence.
    """
    halves = query.dtype in (torch.bfloat16, torch.float16)
    width = query.shape[-1]
    ordered, local = layout.order is not None, layout.window is not None
    plain = (layout.causal or not ordered) and (layout.consecutive or not local)
    plain = plain and layout.unseen is None and layout.biases is None
    return halves and width % 8 == 0 and width <= WIDEST and plain and (layout.counts is None or not (ordered or local))


def varlen(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend in all sequences at once, where `fits`. Nothing here makes the host wait for the GPU."""
    starts = layout.bounds if layout.firsts is None else layout.firsts
    sizes = (max(layout.queries), max(layout.lengths), dropout, layout.causal)
    window = {}
    if layout.window is not None:
        window = {"window_size_left": layout.window, "window_size_right": 0 if layout.causal else layout.window}
    mixed: Tensor = _Attention.apply(query, key, value, starts, layout.bounds, sizes, window)
    return mixed


class _Attention(torch.autograd.Function):
    """Flash attention whose gradient is the same in every run."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *columns, sizes, window = given
        found = torch.ops.aten._flash_attention_forward(*columns, *sizes, False, **window)
        mixed, normalizers, random, unused, _ = found
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
        return *gradients, None, None, None, None


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    """Have torch take the deterministic way of the operators called inside, of those that have one."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
