"""Sentence order: are two consecutive texts in their order, or swapped (ALBERT, Lan et al. 2020, section 3.1)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from osbert.data.pack import Packer
from osbert.data.pairs import consecutive, pairs
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.text.document import Document, Documents

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

KEPT, SWAPPED = 0, 1
"""The labels, as Hugging Face numbers them: original order, switched order."""


@dataclass(frozen=True, kw_only=True)
class SentenceOrder(Objective):
    """Pairs of consecutive spans of sentences, some of them in the wrong order.

    Both texts come from one document, so the topic reveals nothing, unlike in next-sentence prediction: the model has
    to learn coherence.
    """

    pairs: ClassVar[bool] = True
    title: ClassVar[str] = "Sentence order"
    answers: ClassVar[Literal["pair"]] = "pair"

    swapped: float = 0.5
    """Fraction of pairs whose texts are swapped."""

    def __post_init__(self) -> None:
        if not 0 <= self.swapped <= 1:
            raise ValueError(f"swapped must be a fraction between 0 and 1, not {self.swapped}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return pairs of consecutive texts of one document (`data.pairs.consecutive`); single pieces are dropped."""
        joined, (starts, parted, ends) = consecutive(Documents.of(documents), packer, rng)
        paired = np.flatnonzero(parted < ends)
        starts, parted, ends = starts[paired], parted[paired], ends[paired]
        swap = rng.random(len(paired)) < self.swapped
        texts = (
            np.where(swap, parted, starts),
            np.where(swap, ends, parted),
            np.where(swap, starts, parted),
            np.where(swap, parted, ends),
        )
        return pairs(joined, texts, packer, rng, {self.name: np.where(swap, SWAPPED, KEPT)})

    def head(self, backbone: Backbone) -> Head:
        from osbert.models.heads.predictions import SequenceHead

        return SequenceHead(backbone, target=self.name, form="order")
