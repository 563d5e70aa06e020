"""Embeddings: piece + segment + learned position, summed, normalised, dropped out (BERT, section 3, figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear
from osbert.models.transformer.block import norm
from osbert.models.transformer.distance_scores import DistanceScores

if TYPE_CHECKING:
    from osbert.models.architecture import Architecture


class Embeddings(nn.Module):
    """Batch -> (N, D). Rotary positions, for which `positions` is None, and `distance_scores` act in attention.

    Embeddings of another width are projected to D after all the rest (ELECTRA, Clark et al. 2020, section 3.2).
    """

    def __init__(self, architecture: Architecture) -> None:
        """Make the tables an architecture asks for."""
        super().__init__()
        width = architecture.embedding or architecture.width
        self.first = architecture.first_position
        places = architecture.length + self.first
        self.pieces = nn.Embedding(architecture.vocabulary, width)
        self.segments = nn.Embedding(architecture.segments, width) if architecture.segments else None
        self.positions = nn.Embedding(places, width) if architecture.positions == "learned" else None
        self.distance_scores = DistanceScores(architecture) if architecture.distance_scores else None
        self.norm = norm(architecture, width) if architecture.embedding_norm else nn.Identity()
        self.dropout = Dropout(architecture.dropout)
        self.projection = Linear(width, architecture.width) if architecture.embedding else None

    def forward(self, batch: Batch) -> Tensor:
        """Return the (N, D) input of the first block."""
        total = self.pieces(batch.ids)
        if self.segments is not None:
            total = total + self.segments(batch.segments)
        if self.positions is not None:
            total = total + self.positions(batch.positions + self.first if self.first else batch.positions)
        hidden = self.dropout(self.norm(total))
        return hidden if self.projection is None else self.projection(hidden)
