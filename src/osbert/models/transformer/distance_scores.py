"""DistanceScores: what is added to the scores of attention for how far a key is from a query (T5, MPNet)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from osbert.models.transformer.layout import Layout

if TYPE_CHECKING:
    from osbert.models.architecture import Architecture

FARTHEST = 128
"""The distance from which on all are in one bucket."""


class DistanceScores(nn.Module):
    """A number for each head and each bucket of distances, the same in all layers (Raffel et al. 2020, section 2.1)."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the table (buckets, H)."""
        super().__init__()
        self.past = False
        """Whether no key is behind its query, so that all buckets are for keys before it: a decoder's."""
        self.table = nn.Embedding(architecture.distance_scores, architecture.heads)

    def forward(self, layout: Layout) -> Layout:
        """Return the layout with what is added to the scores of each of its runs."""
        if layout.consecutive:  # the distances of the longest sequence hold all others
            positions = torch.arange(max(layout.lengths), device=layout.positions.device)[None]
            every = self.between(positions, positions)
            return layout.biased([every[:, :, : run.width, : run.width] for run in layout.runs])
        tokens = layout.positions.split([run.tokens for run in layout.runs])
        placed = [run.keys(part) for run, part in zip(layout.runs, tokens, strict=True)]
        return layout.biased([self.between(positions, positions) for positions in placed])

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return what is added, (C, H, Q, T), for queries at positions `queries` (C, Q) and `keys` at theirs (C, T)."""
        apart = keys[:, None, :] - queries[:, :, None]  # (C, Q, T): above 0 where the key is behind the query
        found = buckets(apart, self.table.num_embeddings, past=self.past)
        return self.table(found).movedim(-1, 1)


def buckets(apart: Tensor, count: int, *, past: bool = False) -> Tensor:
    """Return the bucket of each distance, of `count`: the upper half is for keys behind their query.

    With `past` those share the bucket of distance 0, and all buckets are as one half. In each half the nearest half of
    the distances have buckets of their own; those of the others grow by a factor, and the last one has all from
    `FARTHEST` on.
    """
    half = count if past else count // 2
    near = half // 2
    distance = -apart.clamp(max=0) if past else apart.abs()
    growth = torch.log(distance.clamp(min=1).float() / near) / math.log(FARTHEST / near)
    far = (near + (growth * (half - near)).long()).clamp(max=half - 1)
    found = torch.where(distance < near, distance, far)
    return found if past else found + half * (apart > 0)
