"""What a model is trained on. One objective a file; the file's name is the objective's name.

An objective is a frozen dataclass whose fields are its settings. It imports no torch on the data side, so that loader
workers stay light; its head, the torch side, is imported inside `head`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.text.document import Document

if TYPE_CHECKING:
    from osbert.models.heads import Head
    from osbert.models.transformer import Transformer

__all__ = ["Objective"]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Documents -> examples -> corrupted examples, and the head that turns states into a loss.

    Several objectives train together: the first one that lays out examples does so for all, and each corrupts or labels
    every example.
    """

    fewest_documents: ClassVar[int] = 1
    """How many documents `examples` needs at a time; the loader sees to it, or says before any work that it cannot."""

    @property
    def name(self) -> str:
        """The name of the objective's file, under which its targets and its head stand."""
        return type(self).__module__.rpartition(".")[2]

    def examples(
        self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator
    ) -> Iterator[Example] | None:
        """Yield the examples of some documents, or return None when any layout will do."""
        return None

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the example with this objective's noise and labels, drawn anew each epoch."""
        return example

    def head(self, backbone: Transformer) -> Head:
        """Return the head that turns states into this objective's loss."""
        raise NotImplementedError

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Set what a new head can know from the corpus's unigram counts (V,) before the first step; else nothing."""
        return
