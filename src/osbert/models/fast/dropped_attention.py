"""Attention with dropout on the CPU, which fused attention there does not support: separate products, little memory.

For the backward pass each attention weight and two bytes of its random number are saved. Everything else is in buffers
for a few heads at a time, which stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from osbert.models.fast.dropout import Chances
from osbert.models.fast.threads import threads_for

WEIGHTS = 2**20
"""About how many attention weights are processed at a time."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, *, visible: Tensor | None, dropout: float, bias: Tensor | None = None
) -> Tensor:
    """Return the output of attention (B, H, Q, K) for sequences of equal length.

    `query` (B, H, Q, K), `key` and `value` (B, H, T, K). `visible` (B or 1, 1, Q or 1, T), queries in rows: True if
    q attends to k, None for all; the output of a query without any key is 0. `dropout`: the dropout probability of the
    weights. `bias` (B or 1, H, Q, T) is added to the scaled scores.
    """
    hidden = None if visible is None else ~visible
    with torch.autocast(query.device.type, enabled=False):
        columns = (column.to(value.dtype).contiguous() for column in (query, key, value))
        added = None if bias is None else bias.to(value.dtype)
        mixed: Tensor = _Attention.apply(*columns, added, hidden, Chances(dropout))
    return mixed


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        query, key, value, bias, hidden, chances = given
        mixed = torch.empty_like(query)
        weights = value.new_empty(*query.shape[:3], value.shape[2])  # (B, H, Q, T)
        scale = query.shape[-1] ** -0.5
        levels = chances.draw(weights.shape)
        with threads_for(weights.numel() * query.shape[-1]):
            for at in _pieces(weights):
                # Some sequences and heads as one batch of matrices: (b, h, Q, ...) -> (b h, Q, ...).
                here, q, k, v, out = (column[at].flatten(0, 1) for column in (weights, query, key, value, mixed))
                # beta = 0 ignores the uninitialised buffer, and alpha scales the product without another pass.
                torch.baddbmm(here, q, k.transpose(1, 2), beta=0, alpha=scale, out=here)
                if bias is not None:
                    weights[at].add_(_of(bias, at))
                _softmax(weights[at], None if hidden is None else _of(hidden, (at[0], slice(None))))
                factors = chances.factors(levels[at].flatten(0, 1), here.dtype)
                torch.bmm(factors.mul_(here), v, out=out)
        ctx.save_for_backward(query, key, value, weights, levels)
        ctx.chances, ctx.bias_shape = chances, None if bias is None else bias.shape
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *towards: Any) -> Any:
        query, key, value, weights, levels = ctx.saved_tensors
        gradients = [torch.empty_like(column) for column in (query, key, value)]
        of_bias = weights.new_zeros(ctx.bias_shape) if ctx.needs_input_grad[3] else None
        given = (weights, levels, query, key, value, towards[0].contiguous(), *gradients)
        scale = query.shape[-1] ** -0.5
        with threads_for(weights.numel() * query.shape[-1]):
            for at in _pieces(weights):
                here, drawn, q, k, v, slope, of_q, of_k, of_v = (column[at].flatten(0, 1) for column in given)
                factors = ctx.chances.factors(drawn, here.dtype)
                # Dropout is linear: the gradient of a weight has the same factor as the weight.
                of_weights = torch.bmm(slope, v.transpose(1, 2)).mul_(factors)
                torch.bmm(factors.mul_(here).transpose(1, 2), slope, out=of_v)
                # w * (g - sum(g * w)), as torch computes it.
                of_scores = torch._softmax_backward_data(of_weights, here, -1, here.dtype)
                if of_bias is not None:
                    part = _of(of_bias, at)
                    # Not scaled: the bias was added after the scale. A shared bias gets a sum over sequences.
                    part += of_scores.view_as(weights[at]).sum_to_size(part.shape)
                of_scores.mul_(scale)
                torch.bmm(of_scores, k, out=of_q)
                torch.bmm(of_scores.transpose(1, 2), q, out=of_k)
        return *gradients, of_bias, None, None


def _of(column: Tensor, at: tuple[slice, slice]) -> Tensor:
    """Return the part of a column (B or 1, H, Q, T) for the slices `at` of B and H."""
    return column[at if len(column) > 1 else (slice(None), at[1])]


def _softmax(scores: Tensor, hidden: Tensor | None) -> None:
    """Turn `scores` (B, H, Q, T) into weights in place, 0 if `hidden` (B or 1, 1, Q or 1, T), even for a whole row."""
    if hidden is not None:
        # The lowest number and not -inf: a row of -inf would be NaN.
        scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)
    torch.softmax(scores, dim=-1, out=scores)
    if hidden is not None and (blind := hidden.all(dim=-1, keepdim=True)).any():
        scores.masked_fill_(blind, 0)


def _pieces(weights: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield the slices of (B, H) to process together: whole sequences, or some heads of one long sequence."""
    count, heads, queries, length = weights.shape
    of_head = max(1, queries * length)
    of_heads = min(heads, max(1, WEIGHTS // of_head))
    sequences = max(1, WEIGHTS // (heads * of_head))
    for first in range(0, count, sequences):
        for head in range(0, heads, of_heads):
            yield slice(first, first + sequences), slice(head, head + of_heads)
