"""Attention with dropout on the CPU, which fused attention there does not support: separate products, little memory.

Tokens come and go flat; each run of sequences is copied into matrices once, and its result copied out once. For the
backward pass each attention weight and two bytes of its random number are saved. Everything else is in buffers for a
few heads at a time, which stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from osbert.models.fast.dropout import Chances
from osbert.models.fast.threads import threads_for
from osbert.models.transformer.runs import TokenRun

WEIGHTS = 2**20
"""About how many attention weights are processed at a time."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Sequence[TokenRun],
    *,
    dropout: float,
    biases: Sequence[Tensor | None] | None = None,
) -> Tensor:
    """Return the output of attention (R, H, K) for queries (R, H, K), and keys and values (N, H, K), of all `runs`.

    The output of a query without any key is 0. `dropout`: the dropout probability of the weights. `biases`: of each run
    what is added to its scaled scores (count or 1, H, Q, T), or None. Half precisions are computed in float32: the
    CPU's small products in bf16 would be compiled for each number of sequences.
    """
    # The products take a mask in place of an order: a query sees its own token and those before it.
    runs = [
        replace(run, visible=torch.ones(1, 1, run.width, run.width, dtype=torch.bool).tril(), causal=False)
        if run.causal
        else run
        for run in runs
    ]
    with torch.autocast(query.device.type, enabled=False):
        mixed: Tensor = _Attention.apply(query, key, value, runs, Chances(dropout), *(biases or [None] * len(runs)))
    return mixed


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        query, key, value, runs, chances, *biases = given
        flat = torch.empty_like(query, dtype=value.dtype, memory_format=torch.contiguous_format)
        sizes = [run.count * query.shape[1] * run.width * run.length for run in runs]  # of (count, H, Q, T)
        drawn = chances.draw([sum(sizes)]).split(sizes)
        saved: list[Tensor] = []
        for run, bias, levels, parts in zip(runs, biases, drawn, _cut(runs, query, key, value, flat), strict=True):
            q, k, v, out = parts
            columns = [_matrices(run.spread(q)), _matrices(run.keys(k)), _matrices(run.keys(v))]
            mixed, weights, levels = _forward(columns, bias, run.visible, levels, chances)
            _write_queries(run, out, mixed)
            saved += *columns, weights, levels
        ctx.save_for_backward(*saved)
        ctx.runs, ctx.chances = runs, chances
        ctx.kinds = [column.dtype for column in (query, key, value)]
        ctx.bias_shapes = [None if bias is None else bias.shape for bias in biases]
        return flat

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *towards: Any) -> Any:
        [slopes], saved = towards, ctx.saved_tensors
        tokens = sum(run.tokens for run in ctx.runs)
        counts = len(slopes), tokens, tokens  # of queries, keys and values
        gradients = [slopes.new_empty(count, *slopes.shape[1:], dtype=kind) for count, kind in zip(counts, ctx.kinds)]
        of_biases: list[Tensor | None] = []
        parts_of = _cut(ctx.runs, gradients[0], gradients[1], gradients[2], slopes)
        for number, (run, parts) in enumerate(zip(ctx.runs, parts_of, strict=True)):
            mine = saved[5 * number : 5 * number + 5]
            shape = ctx.bias_shapes[number] if ctx.needs_input_grad[5 + number] else None
            of_bias = None if shape is None else mine[3].new_zeros(shape)
            of_q, of_k, of_v = _backward(mine, _matrices(run.spread(parts[3])), of_bias, ctx.chances)
            _write_queries(run, parts[0], of_q)
            run.sum_keys(of_k.transpose(1, 2), parts[1])
            run.sum_keys(of_v.transpose(1, 2), parts[2])
            of_biases.append(of_bias)
        return *gradients, None, None, *of_biases


def _cut(runs: Sequence[TokenRun], query: Tensor, key: Tensor, value: Tensor, mixed: Tensor) -> Iterator[list[Tensor]]:
    """Yield the rows of each run in `query`, `key`, `value` and `mixed`."""
    first = start = 0
    for run in runs:
        rows, tokens = slice(first, first + run.queries), slice(start, start + run.tokens)
        yield [query[rows], key[tokens], value[tokens], mixed[rows]]
        first, start = rows.stop, tokens.stop


def _matrices(rectangles: Tensor) -> Tensor:
    """Return `rectangles` (count, Q or T, H, K) as (count, H, Q or T, K); half precisions as float32."""
    apart = rectangles.transpose(1, 2)
    precision = torch.float32 if apart.dtype.itemsize < torch.float32.itemsize else apart.dtype
    return torch.empty(apart.shape, dtype=precision).copy_(apart)  # one pass, whatever the layout and the precision


def _write_queries(run: TokenRun, rows: Tensor, matrices: Tensor) -> None:
    """Write `matrices` (count, H, Q, K) to `rows` (queries, H, K)."""
    rectangles = matrices.transpose(1, 2)
    # Rows that lie in cells of their own are spread into a copy, even where they fill every cell.
    if run.query_cells is None and len(rows) == run.count * run.width:
        run.spread(rows).copy_(rectangles)
    else:
        rows.copy_(run.flat(rectangles))


def _forward(
    columns: Sequence[Tensor], bias: Tensor | None, visible: Tensor | None, levels: Tensor, chances: Chances
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output (B, H, Q, K), the weights and their levels (B, H, Q, T) for queries, keys and values."""
    query, key, value = columns
    hidden = None if visible is None else ~visible
    mixed = torch.empty_like(query)
    weights = value.new_empty(*query.shape[:3], value.shape[2])  # (B, H, Q, T)
    levels = levels.view(weights.shape)
    bias = None if bias is None else bias.to(weights.dtype)
    scale = query.shape[-1] ** -0.5
    with threads_for(weights.numel() * query.shape[-1]):
        for at, (here, q, k, v, out, drawn) in _pieces(weights, query, key, value, mixed, levels):
            # beta = 0 ignores the uninitialised buffer, and alpha scales the product without another pass.
            torch.baddbmm(here, q, k.transpose(1, 2), beta=0, alpha=scale, out=here)
            if bias is not None:
                weights[at].add_(_of(bias, at))
            if hidden is None:
                torch.softmax(here, dim=-1, out=here)
            else:
                _softmax(weights[at], _of(hidden, (at[0], slice(None))))
            mask = chances.keep_mask(drawn, here.dtype)
            torch.baddbmm(out, mask.mul_(here), v, beta=0, alpha=chances.scale, out=out)
    return mixed, weights, levels


def _backward(saved: Sequence[Tensor], slope: Tensor, of_bias: Tensor | None, chances: Chances) -> list[Tensor]:
    """Return the gradients of queries, keys and values for that of the output (B, H, Q, K); add to that of the bias."""
    query, key, value, weights, levels = saved
    gradients = [torch.empty_like(column) for column in (query, key, value)]
    scale, kept_scale = query.shape[-1] ** -0.5, chances.scale
    with threads_for(weights.numel() * query.shape[-1]):
        for at, parts in _pieces(weights, levels, query, key, value, slope, *gradients):
            here, drawn, q, k, v, slopes, of_q, of_k, of_v = parts
            mask = chances.keep_mask(drawn, here.dtype)
            # Dropout is linear: the gradient of a weight has the same factor as the weight.
            of_weights = torch.empty_like(here)
            torch.baddbmm(of_weights, slopes, v.transpose(1, 2), beta=0, alpha=kept_scale, out=of_weights).mul_(mask)
            torch.baddbmm(of_v, mask.mul_(here).transpose(1, 2), slopes, beta=0, alpha=kept_scale, out=of_v)
            # w * (g - sum(g * w)), as torch computes it.
            of_scores = torch._softmax_backward_data(of_weights, here, -1, here.dtype)
            if of_bias is not None:
                part = _of(of_bias, at)
                # Not scaled: the bias was added after the scale. A shared bias gets a sum over sequences.
                part += of_scores.view_as(weights[at]).sum_to_size(part.shape)
            torch.baddbmm(of_q, of_scores, k, beta=0, alpha=scale, out=of_q)
            torch.baddbmm(of_k, of_scores.transpose(1, 2), q, beta=0, alpha=scale, out=of_k)
    return gradients


def _of(column: Tensor, at: tuple[slice, slice]) -> Tensor:
    """Return the part of a column (B or 1, H, Q, T) for the slices `at` of B and H."""
    return column[at if len(column) > 1 else (slice(None), at[1])]


def _softmax(scores: Tensor, hidden: Tensor) -> None:
    """Turn `scores` (B, H, Q, T) into weights in place, 0 if `hidden` (B or 1, 1, Q or 1, T), even for a whole row."""
    # The lowest number and not -inf: a row of -inf would be NaN.
    scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)
    torch.softmax(scores, dim=-1, out=scores)
    if (blind := hidden.all(dim=-1, keepdim=True)).any():
        scores.masked_fill_(blind, 0)


def _pieces(weights: Tensor, *columns: Tensor) -> Iterator[tuple[tuple[slice, slice], Sequence[Tensor]]]:
    """Yield what to process together: whole sequences, or some heads of one long sequence.

    Each piece is its slices of B and H, and its part (b h, ...) of `weights` (B, H, Q, T) and of the `columns` (B, H,
    ...), as a batch of matrices.
    """
    count, heads, queries, length = weights.shape
    of_head = max(1, queries * length)
    of_heads = min(heads, max(1, WEIGHTS // of_head))
    sequences = max(1, WEIGHTS // (heads * of_head))
    every = [column.flatten(0, 1) for column in (weights, *columns)]
    if sequences >= count:  # no slices: with many short runs they would take longer than the products
        yield (slice(None), slice(None)), every
        return
    for first in range(0, count, sequences):
        for head in range(0, heads, of_heads):
            last, end = min(first + sequences, count) - 1, min(head + of_heads, heads)
            rows = slice(first * heads + head, last * heads + end)
            yield (slice(first, last + 1), slice(head, end)), [column[rows] for column in every]
