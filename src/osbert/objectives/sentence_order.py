"""Sentence order: are two consecutive texts in their order, or swapped (ALBERT, Lan et al. 2020, section 3.1)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from osbert.data.example import Booleans
from osbert.data.pack import Packer
from osbert.data.pairs import gathered, pairs, sentences_of
from osbert.data.sentences import walk
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.text.document import Document, Documents

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

KEPT, SWAPPED = 0, 1
"""The labels, as Hugging Face numbers them: original order, switched order."""


@dataclass(frozen=True, kw_only=True)
class SentenceOrder(Objective):
    """Pairs of consecutive spans of sentences, of which a share is shown in the wrong order.

    Both texts are of one document, so topics tell nothing, which next-sentence prediction can live on; what must be
    learnt is how texts hang together.
    """

    pairs: ClassVar[bool] = True
    title: ClassVar[str] = "Sentence order"
    answers: ClassVar[Literal["pair"]] = "pair"

    swapped: float = 0.5
    """Share of pairs whose texts are swapped."""

    def __post_init__(self) -> None:
        """Refuse a share that is none."""
        if not 0 <= self.swapped <= 1:
            raise ValueError(f"swapped is a share between 0 and 1, not {self.swapped}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return pairs that walk through each document in turn, gathered and parted as those of next sentences.

        A sentence that stands alone (a last one, or one past a short aim) is parted within, at a word where it can be;
        a lone piece has no order and is left out.
        """
        sentences = sentences_of(Documents.of(documents), packer)
        _, middles, lasts = gathered(sentences, packer, rng)
        firsts = walk(lasts)
        bounds = sentences.bounds
        starts, parted, ends = (bounds[places] for places in (firsts, middles[firsts], lasts[firsts]))
        for place in np.flatnonzero(parted == ends).tolist():
            parted[place] = starts[place] + _cut(sentences.documents.words[starts[place] : ends[place]], rng)
        paired = np.flatnonzero(parted > starts)
        starts, parted, ends = starts[paired], parted[paired], ends[paired]
        swap = rng.random(len(paired)) < self.swapped
        texts = (
            np.where(swap, parted, starts),
            np.where(swap, ends, parted),
            np.where(swap, starts, parted),
            np.where(swap, parted, ends),
        )
        return pairs(sentences.documents, texts, packer, rng, {self.name: np.where(swap, SWAPPED, KEPT)})

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on the pooled state, two scores a sequence."""
        from osbert.models.heads.predictions import SequenceHead

        return SequenceHead(backbone, target=self.name, form="order")


def _cut(words: Booleans, rng: np.random.Generator) -> int:
    """Return where a text (n,) is parted: a random word start, or any piece where there is none; 0 for a lone piece."""
    places = 1 + np.flatnonzero(words[1:])
    if not len(places):
        places = np.arange(1, len(words))
    return int(rng.choice(places)) if len(places) else 0
