"""Layout: how the sequences of a batch lie in memory and who sees whom, worked out once and read by every layer.

The rule: query q sees key k when both are of one sequence and order[k] <= order[q].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.transformer.positions import rotation


@dataclass(frozen=True, kw_only=True)
class EqualLengths:
    """`count` neighbouring sequences of `length` = T tokens each.

    `visible` (count, 1, T, T), queries in rows: True where q sees k; None where a kernel needs no mask. `queries`: how
    many tokens of each are read, () for all.
    """

    count: int
    length: int
    visible: Tensor | None = None
    queries: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """Return how many tokens the run holds."""
        return self.count * self.length


@dataclass(kw_only=True, eq=False)
class Layout:
    """How a batch's sequences lie in memory and who sees whom, worked out once and read by every layer.

    `causal`: the order is 0, 1, 2, ... in every sequence, for which kernels have a faster way than a mask (`visible` is
    then None). `bounds` (B + 1,), int32: where sequences begin, and where the last one ends. `turns` (N, K/2, 2): the
    rotary positions, None for learned ones. `read` (R,): the only tokens, in ascending order, that are asked for what
    they see, so that there are R queries; None for all N.

    Not frozen: torch.compile (2.11) reads every field of a frozen dataclass, and would compile the layers again for
    every number of runs, up to its limit, and then no longer.
    """

    lengths: tuple[int, ...]
    order: Tensor | None
    runs: tuple[EqualLengths, ...]
    bounds: Tensor
    causal: bool = False
    turns: Tensor | None = None
    read: Tensor | None = None

    @property
    def queries(self) -> tuple[int, ...]:
        """Return how many queries each of the B sequences has."""
        return tuple(count for run in self.runs for count in run.queries or (run.length,) * run.count)

    def reading(self, read: Tensor, counts: Sequence[int]) -> Layout:
        """Return the layout, of order 0 everywhere, for queries of `read` (R,) alone, `counts` (B,) a sequence."""
        runs, start = [], 0
        for run in self.runs:
            runs.append(replace(run, queries=tuple(counts[start : start + run.count])))
            start += run.count
        return replace(self, runs=tuple(runs), read=read)

    def read_of(self, rows: Tensor) -> Tensor:
        """Return what is read of `rows` (N, ...)."""
        return rows if self.read is None else rows.index_select(0, self.read)


def lay_out(batch: Batch, *, rotary: int = 0) -> Layout:
    """Return the layout of a batch; `rotary` is the head width to make rotary turns for, 0 for none."""
    # On a GPU the comparison would make the host wait, so there a causal order that is no matter of the model goes the
    # general way.
    causal = batch.order is not None and (
        batch.order is batch.positions
        or (batch.order.device.type == "cpu" and torch.equal(batch.order, batch.positions))
    )
    order = None if causal else batch.order
    runs = []
    start = 0
    for length, group in groupby(batch.lengths):
        run = EqualLengths(count=len(list(group)), length=length)
        if order is not None:
            ranks = order[start : start + run.tokens].view(run.count, 1, length)
            run = EqualLengths(count=run.count, length=length, visible=ranks[:, :, None, :] <= ranks[:, :, :, None])
        runs.append(run)
        start += run.tokens
    turns = rotation(batch.positions, rotary) if rotary else None
    return Layout(
        lengths=batch.lengths,
        order=batch.order,
        runs=tuple(runs),
        bounds=functional.pad(batch.starts, (0, 1), value=batch.tokens).int(),
        causal=causal,
        turns=turns,
    )
