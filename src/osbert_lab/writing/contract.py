"""The contracts of backbones that write texts: a decoder with cached states, and what makes one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from osbert.data.example import Example
from osbert.models.contract import Backbone, Head
from osbert.models.sizes import Precision


class CachedDecoder(Protocol):
    """A model with the cached state of the rows that it generates. Scores are logits (rows, V)."""

    @property
    def device(self) -> torch.device:
        """The device of the scores."""
        ...

    def fresh(self, precision: Precision = "fp32", *, spare: int = sys.maxsize) -> Self:
        """Return an empty decoder of the same model, which computes the products of its steps in `precision`.

        `spare`: bytes for copies of weights that only save time; if they need more, there are none.
        """
        ...

    def copies(self, *, rows: int, most: int) -> int:
        """Return the bytes of weights that `begin` would copy for so many rows and pieces; 0 if it has done so."""
        ...

    def memory(self, prompt: Example, *, most: int, beams: int = 1) -> int:
        """Return the bytes of the cached state of all rows of a prompt after `most` pieces."""
        ...

    def begin(self, prompts: Sequence[Example], *, most: int, beams: int = 1) -> Tensor:
        """Read the prompts, one row each, and return the scores (rows, V) of each next piece.

        `most`: largest number of pieces that may follow. `beams`: rows that each prompt will have in the steps.
        """
        ...

    def step(self, pieces: Tensor) -> Tensor:
        """Read one more piece of each row (rows,) and return the scores (rows, V) of the next."""
        ...

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Continue with these rows, in this order; a repeated row is duplicated.

        `related`: the number of rows is unchanged, and each has the same prompt as the row that it replaces.
        """
        ...


class WritingBackbone(Backbone):
    """A backbone with a decoder of its own; a Transformer has those of osbert_lab/writing/decoders.py."""

    def decoder(self, head: Head) -> CachedDecoder | None:
        """Return a decoder of this backbone and a head that predicts pieces; None if they cannot generate text."""
        raise NotImplementedError

    def writes(self, head: Head) -> bool:
        """Return whether there is a decoder for the head."""
        return self.decoder(head) is not None
