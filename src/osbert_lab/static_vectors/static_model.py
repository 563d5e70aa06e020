"""Static vectors: one vector for each piece, without context, as word2vec and GloVe learn them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Sizes, States, StepSize


@dataclass(frozen=True, kw_only=True)
class StaticSizes(Sizes):
    """The sizes of a table of vectors."""

    family: ClassVar[str] = "static"
    layers: ClassVar[int] = 0  # type: ignore[misc]
    width: int = 100
    """Dimensions of a vector."""
    vocabulary: int = 0
    """Pieces in the table; 0 for the tokenizer's."""
    length: int = 512
    """Most tokens in a sequence. It does not change the vectors."""
    segments: int = 2
    """Segments that a sequence may have. They do not change the vectors."""
    dropout: float = 0.0
    """Dropout rate of the heads of tasks."""
    deviation: float = 0.02
    """Standard deviation of the initial weights, for new vectors and heads."""

    @property
    def any_length(self) -> bool:
        """Return True: no weight depends on the length."""
        return True

    def activations(self, length: int) -> float:
        """Return 0: there are no blocks."""
        return 0.0

    def problems(self) -> tuple[str, ...]:
        """Describe every size that is too small."""
        least = {"width": 1, "vocabulary": 1, "length": 3, "segments": 1}
        return tuple(
            f"{name} is {getattr(self, name)}, but must be at least {number}"
            for name, number in least.items()
            if getattr(self, name) < number
        )


class StaticVectors(Backbone):
    """Batch -> States: the vector of each piece, and the mean of each sequence as its summary.

    The family has no attention weights. After word2vec and GloVe special pieces have the vector 0, which does not
    change the direction of a mean.
    """

    settings = StaticSizes

    def __init__(self, sizes: StaticSizes) -> None:
        """Make the table (V, D)."""
        super().__init__()
        self.architecture = sizes
        self.table = nn.Embedding(sizes.vocabulary, sizes.width)

    @property
    def stack(self) -> Sequence[nn.Module]:
        """Return the table alone: no layer reads it."""
        return [self.table]

    @property
    def embedding(self) -> nn.Embedding:
        """Return the table (V, D), which is the whole model."""
        return self.table

    def initialise(self) -> None:
        """Draw the table from N(0, `deviation`)."""
        nn.init.normal_(self.table.weight, std=self.architecture.deviation)

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the vectors (N, D) and the mean of each sequence (B, D), as `summary` and `pooled`."""
        hidden = self.table(batch.ids)
        mean = torch.stack([part.mean(dim=0) for part in hidden.split(list(batch.lengths))])
        return States(hidden=hidden, summary=mean, pooled=mean)

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield the vectors (N, D), the only layer."""
        yield self.table(batch.ids)

    def flops(self, size: StepSize) -> int:
        """Return 0: a lookup multiplies nothing."""
        return 0
