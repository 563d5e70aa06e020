"""Attention on GPUs with a deterministic gradient, so that a resumed run ends in the same weights.

`varlen` is flash attention over flat tokens, all sequences of a batch in one call, with optional dropout.
torch's `torch.nn.attention.varlen.varlen_attn` has no dropout. Its gradient of queries is not deterministic for
sequences longer than a tile (128 tokens), since the order of summation varies. So this module calls the operator below
it with torch's deterministic gradient.

`FusedAttention` is torch's `scaled_dot_product_attention`, which takes masks, biases and float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.library import CustomOpDef
from torch.nn import functional

from osbert.models.random_numbers import deterministic
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
    return halves and width % 8 == 0 and width <= WIDEST and plain and (layout.firsts is None or not (ordered or local))


def varlen(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend in all sequences at once, if `fits`. Nothing here makes the host wait for the GPU."""
    starts = layout.bounds if layout.firsts is None else layout.firsts
    left = right = layout.window
    if left is not None and layout.causal:
        right = 0  # causal local layers see the window to the left only
    longest = (layout.longest_queries, layout.longest)
    mixed, *_ = _flash(query, key, value, starts, layout.bounds, *longest, dropout, layout.causal, left, right)
    return mixed


def _forward(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return attention's output (R, H, K), the logarithms of its normalisers, and the state of the random numbers."""
    *columns, left, right = given
    # False: no mask for debugging.
    outputs = torch.ops.aten._flash_attention_forward(*columns, False, window_size_left=left, window_size_right=right)
    return outputs[:3]


def _backward(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values, which are the same at each repetition."""
    *columns, random, left, right = given
    # `random` lets the same dropout be drawn again; the argument after it is unused.
    with deterministic("error"):
        gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
            *columns, random, random.new_empty(0), window_size_left=left, window_size_right=right
        )
    return gradients


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    """Keep what the gradient needs."""
    *columns, ctx.longest_queries, ctx.longest, ctx.dropout, ctx.causal, ctx.left, ctx.right = inputs
    ctx.save_for_backward(*columns, *output)


def _gradients(ctx: Any, *towards: Tensor) -> Any:
    """Return the gradients of queries, keys and values; the other arguments have none."""
    query, key, value, starts, bounds, mixed, normalizers, random = ctx.saved_tensors
    columns = (towards[0], query, key, value, mixed, normalizers, starts, bounds)
    sizes = (ctx.longest_queries, ctx.longest, ctx.dropout, ctx.causal)
    return *_flash_backward(*columns, *sizes, random, ctx.left, ctx.right), *[None] * 8


def _operator(name: str, schema: str, compute: Callable[..., Any]) -> CustomOpDef:
    """Return an operator that gives three tensors; torch's own, below `compute`, know the shapes of their results."""
    operator = torch.library.custom_op(name, compute, mutates_args=(), schema=f"{schema} -> (Tensor, Tensor, Tensor)")
    operator.register_fake(compute)
    return operator


# Operators of our own are nodes of a compiled layer's graph; a gradient in deterministic mode would end it.
_flash = _operator(
    "osbert::flash_attention",
    "(Tensor query, Tensor key, Tensor value, Tensor starts, Tensor bounds, SymInt longest_queries, SymInt longest, "
    "float dropout, bool causal, SymInt? left, SymInt? right)",
    _forward,
)
_flash_backward = _operator(
    "osbert::flash_attention_backward",
    "(Tensor towards, Tensor query, Tensor key, Tensor value, Tensor mixed, Tensor normalizers, Tensor starts, "
    "Tensor bounds, SymInt longest_queries, SymInt longest, float dropout, bool causal, Tensor random, SymInt? left, "
    "SymInt? right)",
    _backward,
)
_flash.register_autograd(_gradients, setup_context=_keep)


class FusedAttention(torch.autograd.Function):
    """torch's fused attention (B, H, Q, K) of queries (B, H, Q, K), keys and values (B, H, T, K), for training on GPUs.

    Its own gradients are computed in deterministic mode, which it reads in backward. The other arguments: a mask
    (added to the scores, or True where a query attends to a key; it broadcasts to (B, H, Q, T)), the dropout rate, and
    whether attention is causal.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Return the output of attention, and keep the graph of its own gradients."""
        *columns, dropout, causal = arguments
        with torch.enable_grad():
            inner: list[Any] = [
                None if column is None else column.detach().requires_grad_(column.requires_grad) for column in columns
            ]
            mixed = functional.scaled_dot_product_attention(inner[0], inner[1], inner[2], inner[3], dropout, causal)
        ctx.inner, ctx.mixed = inner, mixed
        return mixed.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *towards: Any) -> Any:
        """Return the gradients of queries, keys, values and mask."""
        inputs = [column for column in ctx.inner if column is not None and column.requires_grad]
        with deterministic("error"):
            gradients = iter(torch.autograd.grad(ctx.mixed, inputs, towards[0]))
        return (
            *(next(gradients) if column is not None and column.requires_grad else None for column in ctx.inner),
            None,
            None,
        )
