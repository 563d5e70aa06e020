"""Static vectors: one vector a piece, whatever its context; word2vec and GloVe learn such tables (models/vectors/)."""

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
    """Numbers in a vector."""
    vocabulary: int = 0
    """Pieces in the table; 0 for the tokenizer's."""
    length: int = 512
    """Most tokens in a sequence. Vectors do not depend on positions."""
    segments: int = 2
    """Kinds of segment that a sequence may have. Vectors do not depend on them."""
    dropout: float = 0.0
    """Dropout rate of the heads of tasks."""
    deviation: float = 0.02
    """Standard deviation of new vectors that nothing has learnt yet, and of heads."""

    @property
    def any_length(self) -> bool:
        """Return True: no weight depends on the length."""
        return True

    def activations(self, length: int) -> float:
        """Return 0: there is no block."""
        return 0.0

    def problems(self) -> tuple[str, ...]:
        """Return every size that is too small."""
        least = {"width": 1, "vocabulary": 1, "length": 3, "segments": 1}
        return tuple(
            f"{name} is {getattr(self, name)}, but must be at least {number}"
            for name, number in least.items()
            if getattr(self, name) < number
        )


class StaticVectors(Backbone):
    """Batch -> States: the vector of each piece, and the mean of each sequence as its summary.

    There is no attention, and so no weights of it. Special pieces have the vector 0 after word2vec and GloVe, and
    change no direction of a mean.
    """

    settings = StaticSizes

    def __init__(self, sizes: StaticSizes) -> None:
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
        """Return the vectors (N, D) and their mean of each sequence (B, D), also as `pooled`."""
        hidden = self.table(batch.ids)
        mean = torch.stack([part.mean(dim=0) for part in hidden.split(list(batch.lengths))])
        return States(hidden=hidden, summary=mean, pooled=mean)

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield the vectors (N, D) alone."""
        yield self.table(batch.ids)

    def flops(self, size: StepSize) -> int:
        """Return 0: vectors are looked up."""
        return 0
