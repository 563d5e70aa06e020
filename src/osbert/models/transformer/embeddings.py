"""Embeddings: piece + segment + learned position, summed, normalised, dropped out (BERT, section 3, figure 2).

A model with a task embedding (ERNIE 2.0, Sun et al. 2020) adds one vector more. The column of segments holds both:
segment + task * number of segments, so that batches need no further column and task 0 is any batch as it is.

Also the vectors of distances, for models with relative positions (DeBERTa, Transformer-XL).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.architecture import Architecture
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear
from osbert.models.transformer.block import norm
from osbert.models.transformer.layout import Layout
from osbert.models.transformer.positions import Distances, distance_rows
from osbert.models.transformer.relative import DistanceEncodings, DistanceScores


class Embeddings(nn.Module):
    """Batch -> (N, D). `positions` is None if positions act inside attention, such as rotary ones.

    Embeddings of another width are projected to D, as the last step (ELECTRA, Clark et al. 2020, section 3.2) or
    before normalisation (DeBERTa). `distances`: makes the vectors of distances for attention. `query`: the vector of
    unseen tokens (XLNet).
    """

    def __init__(self, architecture: Architecture, pieces: nn.Embedding | None = None) -> None:
        """Make the tables of an architecture. `pieces`: an existing table of pieces to share; None for a new one."""
        super().__init__()
        width = architecture.embedding or architecture.width
        self.first = architecture.first_position
        # RoBERTa and MPNet leave the first rows of the table unused.
        position_count = architecture.length + self.first
        self.pieces = pieces or nn.Embedding(architecture.vocabulary, width)
        # With segment scores (XLNet) segments act inside attention only.
        vectors = architecture.segments and not architecture.segment_scores
        self.segments = nn.Embedding(architecture.segments, width) if vectors else None
        self.tasks = nn.Embedding(architecture.tasks, width) if architecture.tasks else None
        self.query = nn.Embedding(1, width) if architecture.query_vector else None
        self.query_piece: int | None = None
        self.positions = nn.Embedding(position_count, width) if architecture.positions == "learned" else None
        self.project_first = architecture.project_first
        # The width at the point where the norm stands: before or after the projection.
        normal = architecture.width if self.project_first else width
        self.distance_scores = DistanceScores(architecture) if architecture.distance_scores else None
        self.norm = norm(architecture, normal) if architecture.embedding_norm else nn.Identity()
        self.dropout = Dropout(architecture.dropout)
        self.projection = (
            Linear(width, architecture.width, bias=not self.project_first) if architecture.embedding else None
        )
        self.distances: DistanceTable | DistanceEncodings | None = None
        if architecture.positions == "disentangled":
            self.distances = DistanceTable(architecture)
        elif architecture.positions == "distances":
            self.distances = DistanceEncodings(architecture)

    def forward(self, batch: Batch, pieces: Tensor | None = None) -> Tensor:
        """Return the (N, D) input of the first block; `pieces` (N, D'): the embeddings of its pieces, if known."""
        total = self.pieces(batch.ids) if pieces is None else pieces
        unseen = self.unseen(batch)
        if self.query is not None and unseen is not None:
            # XLNet's query stream must not see the token itself: one vector for all.
            total = torch.where(unseen[:, None], self.query.weight, total)
        return self.finish(total, batch.segments, batch.positions)

    def unseen(self, batch: Batch) -> Tensor | None:
        """Return the mask (N,) of unseen tokens: the batch's, else those of `query_piece`; None if there are none."""
        if batch.unseen is not None or self.query_piece is None:
            return batch.unseen
        mask = batch.ids == self.query_piece
        return mask if mask.any() else None

    def finish(self, total: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
        """Return the input (..., D) of the first block for the embeddings of pieces (..., D').

        Those of segments and positions, integers (...) or a shape that broadcasts to it, are added here.
        """
        if self.segments is not None and self.tasks is None:
            total = total + self.segments(segments)
        elif self.segments is not None and self.tasks is not None:
            count = self.segments.num_embeddings
            total = total + (self.segments(segments % count) + self.tasks(segments // count))
        if self.positions is not None:
            total = total + self.positions(positions + self.first if self.first else positions)
        if self.projection is not None and self.project_first:
            return self.dropout(self.norm(self.projection(total)))
        hidden = self.dropout(self.norm(total))
        return hidden if self.projection is None else self.projection(hidden)


class DistanceTable(nn.Module):
    """The learned vectors of distances (2 S, D), usually normalised; S is the number of buckets on either side."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.buckets, self.farthest = architecture.buckets, architecture.farthest
        self.table = nn.Embedding(2 * (self.buckets or self.farthest), architecture.width)
        self.norm = norm(architecture) if architecture.distance_norm else nn.Identity()

    def forward(self, layout: Layout) -> Distances:
        """Return the vectors of the distances that the tokens of a layout may have."""
        rows = distance_rows(self.buckets, self.farthest)
        vectors = self.table.weight
        longest = max(layout.lengths, default=1)
        if layout.consecutive and longest <= self.farthest:
            # rows[farthest + d] is the row of distance d: keep |d| < longest, so that fewer vectors are multiplied.
            rows = rows[self.farthest - longest + 1 : self.farthest + longest]
            least = int(rows[0])
            vectors, rows = vectors[least : int(rows[-1]) + 1], rows - least
        return Distances(vectors=self.norm(vectors), rows=rows)
