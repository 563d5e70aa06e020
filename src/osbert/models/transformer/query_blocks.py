"""Query blocks: long sequences with biases attend a few queries at a time, so that memory grows with their length.

A bias has a number for every query and key. Without gradients only those of the current block are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

import torch
from torch import Tensor

from osbert.models.transformer.layout import Layout

LONG = 1024
"""Most tokens of a sequence whose queries attend at once: 48 MiB of biases in BERT BASE's 12 heads."""

SCORES = 2**22
"""Most scores of a block, over all heads: 16 MiB in float32."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutPart:
    """Part of a layout: its own layout, and the rows of its `queries` and `keys` among those of the whole layout."""

    layout: Layout
    queries: slice
    keys: slice

    def blocks(self, heads: int) -> Iterator[LayoutPart]:
        """Yield blocks of queries with the keys that they may see; the part itself if no sequence of it is long."""
        if not has_long(self.layout):
            yield self
            return
        layout = self.layout
        tokens, queries = layout.lengths[0], layout.queries[0]
        size = max(1, SCORES // (heads * tokens))
        # One copy to the host for all blocks: those on a GPU would each wait for it.
        read = torch.arange(tokens) if layout.read is None else layout.read.cpu()
        for first in range(0, queries, size):
            chosen = read[first : first + size]
            keys = slice(0, int(chosen[-1]) + 1 if layout.causal and layout.consecutive else tokens)
            yield self._block(chosen, first, keys)

    def _block(self, chosen: Tensor, first: int, keys: slice) -> LayoutPart:
        """Return the block of the queries of the tokens `chosen`, the first of which is query `first` of the part."""
        read = chosen.to(self.layout.positions.device)
        layout = _cut(self.layout, keys, (keys.stop,), read, (len(chosen),))
        if layout.consecutive:
            layout.reach = (int(chosen[0]) - keys.stop + 1, int(chosen[-1]))
        start = self.queries.start + first
        return LayoutPart(
            layout=layout,
            queries=slice(start, start + len(chosen)),
            keys=slice(self.keys.start, self.keys.start + keys.stop),
        )


def has_long(layout: Layout) -> bool:
    """Return whether a layout has biases, and a sequence for whose queries they are to be computed in blocks."""
    return not layout.plain and layout.longest > LONG


def parts(layout: Layout) -> Iterator[LayoutPart]:
    """Yield the parts of a layout: each long sequence, and the sequences between two long ones."""
    start = first = 0
    # Each long sequence is a group of its own; neighbours that are not long share the key -1.
    numbers = range(len(layout.lengths))
    for _, group in groupby(numbers, key=lambda number: number if layout.lengths[number] > LONG else -1):
        members = [*group]
        lengths = tuple(layout.lengths[member] for member in members)
        counts = tuple(layout.queries[member] for member in members)
        keys, queries = slice(start, start + sum(lengths)), slice(first, first + sum(counts))
        start, first = keys.stop, queries.stop
        read = None if layout.read is None else layout.read[queries] - keys.start
        if queries.stop > queries.start:
            part = _cut(layout, keys, lengths, read, None if read is None else counts)
            yield LayoutPart(layout=part, queries=queries, keys=keys)


def _cut(
    layout: Layout, keys: slice, lengths: tuple[int, ...], read: Tensor | None, counts: tuple[int, ...] | None
) -> Layout:
    """Return the layout of the tokens `keys`, sequences of `lengths`, with queries of the tokens `read` (None: all)."""
    columns = {
        name: column[keys]
        for name in ("positions", "order", "unseen", "segments")
        if (column := getattr(layout, name)) is not None
    }
    bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=layout.positions.device)
    firsts = None if read is None else torch.searchsorted(read, bounds, out_int32=True)
    # Queries and keys are rotated already.
    return replace(
        layout, **columns, lengths=lengths, bounds=bounds, turns=None, read=read, counts=counts, firsts=firsts
    )
