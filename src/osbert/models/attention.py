"""Attention: the rule of who sees whom, two kernels that obey it, and the layer around them.

The rule: query q sees key k when both are of one sequence and order[k] <= order[q]. `reference` spells it out and
defines what is right; `sdpa` does the same with torch's fused attention, one call for each run of sequences of equal
length, so nothing is ever padded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.dropout import dropout as drop
from osbert.models.positions import neighbours, rotate, rotation

if TYPE_CHECKING:
    from osbert.models.transformer import Architecture


@dataclass(frozen=True, kw_only=True)
class Run:
    """`count` neighbouring sequences of `length` = T tokens each.

    `visible` (count, 1, T, T), queries in rows: True where q sees k; None where a kernel needs no mask.
    """

    count: int
    length: int
    visible: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Return how many tokens the run holds."""
        return self.count * self.length


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a batch's sequences lie in memory and who sees whom, worked out once and read by every layer.

    `causal`: the order is 0, 1, 2, ... in every sequence, for which kernels have a faster way than a mask (`visible` is
    then None). `turns` (N, K/2): the rotary positions, None for learned ones.
    """

    lengths: tuple[int, ...]
    order: Tensor | None
    runs: tuple[Run, ...]
    causal: bool = False
    turns: Tensor | None = None


Kernel = Callable[..., Tensor]
"""(query, key, value: each (N, H, K), layout, *, dropout: a share) -> (N, H, K)."""


def lay_out(batch: Batch, *, rotary: int = 0) -> Layout:
    """Return the layout of a batch; `rotary` is the head width to make rotary turns for, 0 for none."""
    # On a GPU the comparison would make the host wait, so there a causal order goes the general way.
    causal = batch.order is not None and batch.order.device.type == "cpu" and torch.equal(batch.order, batch.positions)
    order = None if causal else batch.order
    runs = []
    start = 0
    for length, group in groupby(batch.lengths):
        run = Run(count=len(list(group)), length=length)
        if order is not None:
            ranks = order[start : start + run.tokens].view(run.count, 1, length)
            run = Run(count=run.count, length=length, visible=ranks[:, :, None, :] <= ranks[:, :, :, None])
        runs.append(run)
        start += run.tokens
    turns = rotation(batch.positions, rotary) if rotary else None
    return Layout(lengths=batch.lengths, order=batch.order, runs=tuple(runs), causal=causal, turns=turns)


def weights(query: Tensor, key: Tensor, layout: Layout) -> list[Tensor]:
    """Return each sequence's attention weights (H, T, T), queries in rows, from `query` and `key` (N, H, K)."""
    found = []
    start = 0
    for length in layout.lengths:
        here = slice(start, start + length)
        scores = torch.einsum("qhk,shk->hqs", query[here], key[here]) / query.shape[-1] ** 0.5  # (H, T, T)
        if layout.order is not None:
            order = layout.order[here]
            scores = scores.masked_fill(order[None, :] > order[:, None], float("-inf"))
        found.append(scores.softmax(dim=-1))
        start += length
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
    columns = (
        (query.split(sizes), key.split(sizes), value.split(sizes)) if len(sizes) > 1 else ([query], [key], [value])
    )
    mixed = []
    for run, *parts in zip(layout.runs, *columns, strict=True):
        q, k, v = (part.unflatten(0, (run.count, run.length)).transpose(1, 2) for part in parts)  # (count, H, T, K)
        if unfused:
            visible = torch.ones(run.length, run.length).tril().bool() if layout.causal else run.visible
            out = _products(q, k, v, visible, dropout)
        else:
            out = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=run.visible, dropout_p=dropout, is_causal=layout.causal
            )
        mixed.append(out.transpose(1, 2).flatten(0, 1))  # (count * T, H, K)
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def _products(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, dropout: float) -> Tensor:
    """Attend within sequences of equal length, all (count, H, T, K)."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)  # (count, H, T, T)
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    return drop(scores.softmax(dim=-1), dropout) @ value  # (count, H, T, K)


class Attention(nn.Module):
    """Multi-head self-attention over flat tokens: one product makes queries, keys and values; `kernel` mixes them."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the two linear layers."""
        super().__init__()
        width = architecture.width
        self.heads = architecture.heads
        self.dropout = architecture.attention_dropout
        self.kernel: Kernel = sdpa
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Return (N, D) from `hidden` (N, D)."""
        query, key, value = self._project(hidden, layout)
        mixed = self.kernel(query, key, value, layout, dropout=self.dropout if self.training else 0.0)
        return self.outward(mixed.flatten(1))  # (N, D)

    def weights(self, hidden: Tensor, layout: Layout) -> list[Tensor]:
        """Return each sequence's attention weights (H, T, T) for the layer's input `hidden` (N, D), without dropout."""
        query, key, _ = self._project(hidden, layout)
        return weights(query, key, layout)

    @torch.no_grad()
    def face_neighbours(self, strength: float) -> None:
        """Start the query and key biases so that half the heads look at the token before or after it."""
        biases = neighbours(self.heads, self.outward.in_features // self.heads, strength)
        self.inward.bias[: biases.numel()] = biases.flatten()

    def _project(self, hidden: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.inward(hidden).unflatten(-1, (3, self.heads, -1)).unbind(1)  # 3 x (N, H, K)
        if layout.turns is not None:
            query, key = rotate(query, layout.turns), rotate(key, layout.turns)
        return query, key, value
