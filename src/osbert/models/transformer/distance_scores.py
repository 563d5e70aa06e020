"""DistanceScores: learned biases of attention scores by the distance from query to key (T5, MPNet)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from osbert.models.transformer.layout import Layout
from osbert.models.transformer.query_blocks import has_long

if TYPE_CHECKING:
    from osbert.models.architecture import Architecture

FARTHEST = 128
"""Distance from which on all distances share the last bucket."""


class DistanceScores(nn.Module):
    """A bias for each head and each bucket of distances, shared by all layers (Raffel et al. 2020, section 2.1)."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the table (buckets, H)."""
        super().__init__()
        self.past = False
        """Whether all buckets are for keys before their query, as in a decoder, where no key comes after it."""
        self.table = nn.Embedding(architecture.distance_scores, architecture.heads)

    def forward(self, layout: Layout) -> Layout:
        """Return the layout with the biases of its runs, or of all distances if attention cuts its runs into blocks."""
        if not torch.is_grad_enabled():
            layout = replace(layout, table=self.by_distance(layout))
            return layout if has_long(layout) else table_biases(layout)
        if layout.consecutive:  # biases of shorter sequences are a corner of the longest one's
            positions = torch.arange(max(layout.lengths), device=layout.positions.device)[None]
            every = self.between(positions, positions)
            return layout.with_biases([every[:, :, : run.width, : run.width] for run in layout.runs])
        tokens = layout.positions.split([run.tokens for run in layout.runs])
        placed = [run.keys(part) for run, part in zip(layout.runs, tokens, strict=True)]
        return layout.with_biases([self.between(positions, positions) for positions in placed])

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the biases (C, H, Q, T) for the positions `queries` (C, Q) and `keys` (C, T)."""
        # (C, 1, T) - (C, Q, 1).
        apart = keys[:, None, :] - queries[:, :, None]  # (C, Q, T): above 0 if the key comes after the query
        # (C, Q, T, H) -> (C, H, Q, T)
        return self._of(apart).movedim(-1, 1)

    def by_distance(self, layout: Layout) -> Tensor:
        """Return the biases (H, 2 F + 1) of the distances from a query to a key, -F to F, that a layout may have."""
        most = max(layout.lengths) - 1
        if not layout.consecutive:  # positions with gaps are further apart
            most = int(layout.positions.max() - layout.positions.min())
        apart = torch.arange(-most, most + 1, device=layout.positions.device)
        return self._of(apart).mT.contiguous()

    def _of(self, apart: Tensor) -> Tensor:
        scores: Tensor = self.table(buckets(apart, self.table.num_embeddings, past=self.past))
        return scores


def table_biases(layout: Layout) -> Layout:
    """Return the layout with the biases of its runs, from its `table`.

    In a row of a run the distance to the key grows by one from key to key, so that the row is a part of the table, and
    the rows are one view of it. Only positions with gaps need an index for every query and key.
    """
    table = layout.table
    assert table is not None
    zero = table.shape[1] // 2  # the column of distance 0
    if layout.reach is not None:
        queries = layout.queries[0]
        last = layout.reach[1]
        if layout.reach[0] + layout.lengths[0] + queries == last + 2:  # no gaps between the queries
            return layout.with_biases([_rows(table, zero - last, queries, layout.lengths[0])])
    if layout.consecutive and layout.counts is None:
        # Biases of shorter sequences are a corner of the longest one's.
        longest = max(layout.lengths)
        every = _rows(table, zero - longest + 1, longest, longest)
        return layout.with_biases([every[:, :, : run.width, : run.width] for run in layout.runs])
    return layout.with_biases([table[:, zero - offsets].movedim(0, 1) for offsets in layout.offsets])


def _rows(table: Tensor, first: int, queries: int, keys: int) -> Tensor:
    """Return biases (1, H, Q, T) of neighbouring queries; those of the last query begin in column `first` of the table.

    A query's row is one column to the left of the row of the query before it.
    """
    windows = table[:, first : first + queries + keys - 1].unfold(-1, keys, 1)  # (H, Q, T), the last query first
    # Not `flip`, which keeps a view's order in memory: keys would not be neighbours there.
    return windows.index_select(1, torch.arange(queries - 1, -1, -1, device=table.device))[None]


def buckets(apart: Tensor, count: int, *, past: bool = False) -> Tensor:
    """Return the bucket (0 to `count` - 1) of each distance `apart`; the upper half is for keys after their query.

    With `past`, keys after their query share the bucket of distance 0, and keys before it have all `count` buckets. The
    first half of the buckets of a side are for one distance each; the others are logarithmic, and the last one holds
    all distances from `FARTHEST` on. These are the buckets of T5 (Raffel et al. 2020, section 2.1).
    """
    half = count if past else count // 2
    near = half // 2
    distance = -apart.clamp(max=0) if past else apart.abs()
    # 0 at distance `near`, 1 at FARTHEST. Below `near` it is negative, which `where` discards.
    growth = torch.log(distance.clamp(min=1).float() / near) / math.log(FARTHEST / near)
    # Logarithmic buckets from `near` on; the last one also takes all larger distances.
    far = (near + (growth * (half - near)).long()).clamp(max=half - 1)
    side_buckets = torch.where(distance < near, distance, far)
    return side_buckets if past else side_buckets + half * (apart > 0)
