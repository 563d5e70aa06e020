"""The contract of what writes: it reads prompts once, and then one more piece of each row at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from osbert.data.example import Example
from osbert.models.generation.settings import Precision


class CachedDecoder(Protocol):
    """A model with what it keeps of the rows that it writes. Scores are (rows, V), before the softmax."""

    @property
    def device(self) -> torch.device:
        """Return where the scores are."""
        ...

    def fresh(self, precision: Precision = "fp32") -> Self:
        """Return one of the same model that has read nothing, with the products of its steps in `precision`."""
        ...

    def begin(self, prompts: Sequence[Example], *, most: int) -> Tensor:
        """Read the prompts, a row each, in their order, and return the scores of each one's next piece.

        `most`: how many pieces may follow.
        """
        ...

    def step(self, pieces: Tensor) -> Tensor:
        """Read one more piece of each row, (rows,), and return the scores of the next."""
        ...

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Go on with these rows alone, in this order; one that is there twice goes on in two ways.

        `related`: there are as many as before, and each is of the prompt of the row whose place it takes.
        """
        ...
