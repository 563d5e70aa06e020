"""Relative attention: biases by distance (T5, MPNet), or scores of its sinusoids and of segments (XLNet).

With sinusoids the score of query i and key j is [(q_i + u) . k_j + (q_i + v) . (W R_(i - j))] / sqrt(K), with u, v and
W of the layer (Dai et al. 2019, section 3.3). With segment scores it has a third term, (q_i + s) . e, where e is one of
two vectors: for keys of the query's own segment, and for all others (XLNet, Yang et al. 2019, section 2.5).
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from osbert.models.architecture import Architecture
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear
from osbert.models.transformer.layout import Layout, has_long
from osbert.models.transformer.positions import BASE, Distances

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


def encodings(distances: Tensor, width: int) -> Tensor:
    """Return the sinusoids (C, D) of `distances` (C,), `width` = D: first all sines, then all cosines.

    Angles are computed in double precision, as in `rotation`.

    >>> encodings(torch.tensor([0, 1]), 2)
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]])
    """
    frequencies = BASE ** (-torch.arange(0, width, 2, dtype=torch.float64, device=distances.device) / width)  # (D/2,)
    angles = distances.to(torch.float64)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()


class DistanceEncodings(nn.Module):
    """The vectors of distances for all layers: fixed sinusoids."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.width, self.farthest = architecture.width, architecture.farthest
        self.dropout = Dropout(architecture.dropout)

    def forward(self, layout: Layout) -> Distances:
        """Return the vectors of the distances that the tokens of a layout may have."""
        positions = layout.positions
        longest = max(layout.lengths, default=1) - 1
        if not layout.consecutive:
            # Positions with gaps: distances may exceed the longest sequence.
            longest = int(positions.max() - positions.min())
        longest = min(longest, self.farthest)
        distances = torch.arange(-longest, longest + 1)
        if layout.consecutive and layout.causal:
            distances = distances.clamp(min=0)  # no query sees a key behind it: half of the products are left out
        # After the clamp the least distance is 0 in a causal layout, else -longest.
        least = int(distances[0])
        used = torch.arange(least, longest + 1, device=positions.device)
        # The row of distance d is d - least: `used` lists every distance from the least on.
        return Distances(vectors=self.dropout(encodings(used, self.width)), rows=distances - least)


class RelativeScores(nn.Module):
    """The terms that one layer adds to its scores for distances, and for segments if `segment_scores` is set.

    `inward`: W. `content`, `distance` and `segment` (H * K,): the biases u, v and s. `segments` (2, H * K): the vectors
    of keys of the same segment and of others.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.heads, self.farthest = architecture.heads, architecture.farthest
        joined = self.heads * architecture.key_width
        self.inward = Linear(architecture.width, joined, bias=False)
        self.content = nn.Parameter(torch.zeros(joined))
        self.distance = nn.Parameter(torch.zeros(joined))
        self.segment = nn.Parameter(torch.zeros(joined)) if architecture.segment_scores else None
        self.segments = nn.Parameter(torch.zeros(2, joined)) if architecture.segment_scores else None

    def vectors(self, layout: Layout) -> Tensor:
        """Return W R (W, H, K) for the distances of a layout."""
        assert layout.distances is not None
        return self._by_head(self.inward(layout.distances.vectors))

    def forward(self, query: Tensor, layout: Layout, vectors: Tensor | None = None) -> tuple[Tensor, Layout]:
        """Return the queries plus u (R, H, K), and the layout with the biases of its runs.

        `vectors`: what the method `vectors` returns, if it has been computed already.
        """
        vectors = self.vectors(layout) if vectors is None else vectors
        rows = [run.queries for run in layout.runs]
        # (q + v) . (W R): the second term of the score.
        toward = (query + self._by_head(self.distance)).split(rows)
        biases = []
        for run, part, (used, index) in zip(layout.runs, toward, layout.distance_columns, strict=True):
            # Score every distance once, then pick each key's: Transformer-XL's relative shift, written as a gather.
            scores = _products(run.spread(part), vectors[used])  # (count, H, Q, C)
            biases.append(scores.gather(-1, index[:, None].expand(*scores.shape[:3], -1)))
        if self.segment is not None and self.segments is not None:
            # (q + s) . e: the third term.
            toward = (query + self._by_head(self.segment)).split(rows)
            columns = zip(layout.runs, toward, layout.same_segments, strict=True)
            for number, (run, part, same) in enumerate(columns):
                # Two scores per query, (count, H, Q, 1) each: for keys of its own segment, and of others.
                own_scores, other = _products(run.spread(part), self._by_head(self.segments)).split(1, dim=-1)
                biases[number] = biases[number] + torch.where(same[:, None], own_scores, other)
        # The first term, (q + u) . k, is left to the kernel; the others are a bias of its scores.
        return query + self._by_head(self.content), layout.with_biases(biases)

    def between(self, query: Tensor, positions: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the queries plus u, and the bias of their scores (B, H, Q, T), for generation with cached keys.

        `query` (B, Q, H, K) at positions `positions` (B, Q), keys at positions `columns` (T,). Keys after their query
        must be masked by the caller. Scores of segments are not included.
        """
        distances = torch.arange(min(len(columns), self.farthest + 1), device=query.device)
        # Generation is causal, so that distances are 0 or more, and at most the number of cached keys less 1.
        vectors = self._by_head(self.inward(encodings(distances, self.inward.in_features)))
        scores = _products(query + self._by_head(self.distance), vectors)
        # Distances are at least 0 here; the clamp keeps indices of masked keys in range.
        index = (positions[..., None] - columns).clamp(0, len(distances) - 1)[:, None]
        return query + self._by_head(self.content), scores.gather(-1, index.expand(*scores.shape[:3], -1))

    @torch.no_grad()
    def initialise(self, deviation: float) -> None:
        """Draw the biases and the vectors of segments from N(0, deviation), as in the code of both papers."""
        for weight in (self.content, self.distance, self.segment, self.segments):
            if weight is not None:
                weight.normal_(0, deviation)

    def _by_head(self, rows: Tensor) -> Tensor:
        """Split `rows` (..., H * K) into heads (..., H, K)."""
        return rows.unflatten(-1, (self.heads, -1))


def _products(query: Tensor, vectors: Tensor) -> Tensor:
    """Return the scores (B, H, Q, C), divided by sqrt(K), of `query` (B, Q, H, K) and `vectors` (C, H, K)."""
    kind = torch.float32 if query.device.type == "cpu" else query.dtype  # as `kernels.fastest` attends
    with torch.autocast(query.device.type, enabled=False):
        of_heads = vectors.permute(1, 2, 0).to(kind) / query.shape[-1] ** 0.5  # (H, K, C)
        return query.transpose(1, 2).to(kind) @ of_heads
