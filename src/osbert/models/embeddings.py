"""Embeddings: piece + segment + learned position, summed, normalised, dropped out (BERT, section 3, figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.block import norm
from osbert.models.dropout import Dropout

if TYPE_CHECKING:
    from osbert.models.transformer import Architecture


class Embeddings(nn.Module):
    """Batch -> (N, D). Rotary positions act inside attention, so `positions` is None with them."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the tables an architecture asks for."""
        super().__init__()
        width = architecture.width
        self.pieces = nn.Embedding(architecture.vocabulary, width)
        self.segments = nn.Embedding(architecture.segments, width)
        self.positions = nn.Embedding(architecture.length, width) if architecture.positions == "learned" else None
        self.norm = norm(architecture)
        self.dropout = Dropout(architecture.dropout)

    def forward(self, batch: Batch) -> Tensor:
        """Return the (N, D) input of the first block."""
        total = self.pieces(batch.ids) + self.segments(batch.segments)
        if self.positions is not None:
            total = total + self.positions(batch.positions)
        return self.dropout(self.norm(total))
