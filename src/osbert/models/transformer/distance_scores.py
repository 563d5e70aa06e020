"""DistanceScores: learned biases of attention scores by the distance from query to key (T5, MPNet)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from osbert.models.transformer.layout import Layout

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
        """Return the layout with the biases of each of its runs."""
        if layout.consecutive:  # biases of shorter sequences are a corner of the longest one's
            positions = torch.arange(max(layout.lengths), device=layout.positions.device)[None]
            every = self.between(positions, positions)
            return layout.biased([every[:, :, : run.width, : run.width] for run in layout.runs])
        tokens = layout.positions.split([run.tokens for run in layout.runs])
        placed = [run.keys(part) for run, part in zip(layout.runs, tokens, strict=True)]
        return layout.biased([self.between(positions, positions) for positions in placed])

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the biases (C, H, Q, T) for the positions `queries` (C, Q) and `keys` (C, T)."""
        # (C, 1, T) - (C, Q, 1).
        apart = keys[:, None, :] - queries[:, :, None]  # (C, Q, T): above 0 if the key comes after the query
        found = buckets(apart, self.table.num_embeddings, past=self.past)
        # (C, Q, T, H) -> (C, H, Q, T)
        return self.table(found).movedim(-1, 1)


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
    found = torch.where(distance < near, distance, far)
    return found if past else found + half * (apart > 0)
