"""The smallest backbone: an embedding table, and the mean of each sequence as its summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Sizes, States


@dataclass(frozen=True, kw_only=True)
class ToySizes(Sizes):
    """The table's sizes."""

    family: ClassVar[str] = "toy_mean"
    layers: ClassVar[int] = 0
    width: int = 16
    vocabulary: int = 0
    length: int = 24
    segments: int = 2
    dropout: float = 0.0
    deviation: float = 0.02


class ToyMean(Backbone):
    """Batch -> States."""

    settings = ToySizes

    def __init__(self, sizes: ToySizes) -> None:
        """Make the table."""
        super().__init__()
        self.architecture = sizes
        self.table = nn.Embedding(sizes.vocabulary, sizes.width)

    @property
    def stack(self) -> Sequence[nn.Module]:
        """Return the table."""
        return [self.table]

    @property
    def embedding(self) -> nn.Embedding:
        """Return the table."""
        return self.table

    def initialise(self) -> None:
        """Draw the table."""
        nn.init.normal_(self.table.weight, std=self.architecture.deviation)

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the tokens' embeddings and their means."""
        hidden = self.table(batch.ids)  # (N, D)
        mean = torch.stack([part.mean(dim=0) for part in hidden.split(list(batch.lengths))])  # (B, D)
        return States(hidden=hidden, summary=mean, pooled=mean)

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield the embeddings."""
        yield self.table(batch.ids)
