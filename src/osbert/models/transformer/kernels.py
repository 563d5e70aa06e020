"""Kernels: functions of one signature that mix values by the rule in layout.py.

`reference` spells it out and defines what is right; `sdpa` does the same with torch's fused attention, one call for
each run of sequences of equal length, so nothing is ever padded; `fastest` takes what suits the processor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from osbert.models.fast.dropout import dropout as drop
from osbert.models.fast.dropped_attention import attend
from osbert.models.transformer.kernels_cuda import fits, varlen
from osbert.models.transformer.layout import EqualLengths, Layout

Kernel = Callable[..., Tensor]
"""(query, key, value: each (N, H, K), layout, *, dropout: a share) -> (N, H, K).

Where the layout says what is read there are R queries, and the result is (R, H, K).
"""


def weights(query: Tensor, key: Tensor, layout: Layout) -> list[Tensor]:
    """Return each sequence's attention weights (H, Q, T), queries in rows, from `query` and `key` (N, H, K)."""
    found = []
    start = first = 0
    for length, queries in zip(layout.lengths, layout.queries, strict=True):
        here, asked = slice(start, start + length), slice(first, first + queries)
        scores = torch.einsum("qhk,shk->hqs", query[asked], key[here]) / query.shape[-1] ** 0.5  # (H, Q, T)
        if layout.order is not None:
            order = layout.order[here]
            scores = scores.masked_fill(order[None, :] > order[:, None], float("-inf"))
        found.append(scores.softmax(dim=-1))
        start, first = here.stop, asked.stop
    return found


def reference(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend sequence by sequence, with the scores in the open. Slow; what every other kernel must equal."""
    mixed = []
    start = 0
    for length, shares in zip(layout.lengths, weights(query, key, layout), strict=True):
        mixed.append(torch.einsum("hqs,shk->qhk", drop(shares, dropout), value[start : start + length]))
        start += length
    return torch.cat(mixed)  # (N, H, K)


def sdpa(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend with torch's fused attention, one call for each run of equal lengths.

    The fused attention of the CPU knows no dropout, so with dropout the CPU takes the products one by one.
    """
    unfused = dropout > 0 and query.device.type == "cpu"
    sizes = [run.tokens for run in layout.runs]
    queries = [sum(run.queries) if run.queries else run.tokens for run in layout.runs]
    columns = (
        (query.split(queries), key.split(sizes), value.split(sizes)) if len(sizes) > 1 else ([query], [key], [value])
    )
    mixed = []
    for run, rows, *parts in zip(layout.runs, *columns, strict=True):
        k, v = (part.unflatten(0, (run.count, run.length)).transpose(1, 2) for part in parts)  # (count, H, T, K)
        places = _places(run, rows.device)
        if places is not None:  # rows of 0 make a rectangle of the queries
            rows = rows.new_zeros(run.count * max(run.queries), *rows.shape[1:]).index_copy(0, places, rows)
        q = rows.unflatten(0, (run.count, -1)).transpose(1, 2)
        if unfused:
            visible = _past(run.length) if layout.causal else run.visible
            out = attend(q, k, v, visible=visible, dropout=dropout)
        else:
            out = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=run.visible, dropout_p=dropout, is_causal=layout.causal
            )
        out = out.transpose(1, 2).flatten(0, 1)  # (count * T, H, K)
        mixed.append(out if places is None else out.index_select(0, places))
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def fastest(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend with the fastest kernel that can: `varlen` on a GPU where it fits, else `sdpa`, on a CPU in float32.

    The CPU's fused attention is no faster in bf16 on the way there, and takes four times as long on the way back.
    """
    if query.device.type == "cpu" and value.dtype == torch.bfloat16:
        with torch.autocast("cpu", enabled=False):
            return sdpa(query.float(), key.float(), value.float(), layout, dropout=dropout).bfloat16()
    kernel = varlen if query.is_cuda and fits(query, layout) else sdpa
    return kernel(query, key, value, layout, dropout=dropout)


def _places(run: EqualLengths, device: torch.device) -> Tensor | None:
    """Return where a run's queries go in a rectangle that is as wide as most of them, or None if they fill it."""
    if len(set(run.queries)) < 2:
        return None
    most = max(run.queries)
    places = [row * most + place for row, count in enumerate(run.queries) for place in range(count)]
    return torch.tensor(places, device=device)


def _past(length: int) -> Tensor:
    """Return (1, 1, T, T): True where a query sees itself and what is before it."""
    return torch.ones(1, 1, length, length, dtype=torch.bool).tril()
