"""Sentence distance: are two texts adjacent, of one document, or of two documents (ERNIE 2.0, Sun et al. 2020)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Places
from osbert.data.pack import Packer, Sentences
from osbert.data.pairs import Elsewhere, pairs, plan_pairs, sentences_of
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.text.document import Document, Documents, sources

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

ADJACENT, SAME, OTHER = 0, 1, 2
NEARLY_ALL = 0.9
"""Fraction of one label above which there is little to learn."""
WORDS = ("B follows A", "B is from the same document", "B is from elsewhere")


@dataclass(frozen=True, kw_only=True)
class Distance(Objective):
    """Pairs of texts of three kinds, a third each: adjacent, of the same document but not adjacent, of two documents.

    Section 3.2.2. A text whose document has no place for the label that was sampled for it gets another one: so
    documents of a few sentences have fewer pairs of the first two kinds.
    """

    pairs: ClassVar[bool] = True
    fewest_documents: ClassVar[int] = 2
    title: ClassVar[str] = "Sentence distance"

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return pairs that walk through each document in turn, as those of next-sentence prediction do."""
        if sources(documents) < self.fewest_documents:
            raise ValueError("pairs need two documents with text, from two sources")
        sentences = sentences_of(Documents.of(documents), packer)
        aims, middles, lasts = plan_pairs(sentences, packer, rng)
        labels = rng.integers(3, size=len(sentences))
        far = _far(sentences, middles, rng)
        labels = np.where((labels == SAME) & (far < 0), ADJACENT, labels)
        labels = np.where((labels == ADJACENT) & (middles == lasts), OTHER, labels)
        firsts = _walk(np.where(labels == ADJACENT, lasts, middles))
        labels, bounds = labels[firsts], sentences.bounds
        seconds = np.where(labels == ADJACENT, middles[firsts], far[firsts])
        seconds[labels == OTHER] = Elsewhere(sentences).partners(firsts[labels == OTHER], rng)
        starts, parted, pair_ends = (bounds[indices] for indices in (firsts, middles[firsts], lasts[firsts]))
        # B is about as long as the text that follows A in the pair; if there is none, as the rest of the target length.
        missing = np.where(pair_ends > parted, pair_ends - parted, np.maximum(1, aims[firsts] - (parted - starts)))
        ends = sentences.reach(seconds, missing)
        # A text before A ends one sentence before it, or it would be adjacent.
        before = (labels == SAME) & (seconds < firsts)
        ends = np.where(before, np.minimum(ends, firsts - 1), ends)
        texts = (starts, parted, bounds[seconds], bounds[ends])
        return pairs(sentences.documents, texts, packer, rng, {self.name: labels})

    def idle(self, sequences: Sequences) -> str:
        """Return a remark if nearly all pairs have one label, so that there is little to learn."""
        counts = np.bincount(sequences.labels.get(self.name, np.zeros(0, np.int64)), minlength=3)
        most = int(counts.argmax())
        if counts[most] <= NEARLY_ALL * counts.sum():
            return ""
        return (
            f"{self.name} has the label '{WORDS[most]}' for {counts[most]:,} of {counts.sum():,} pairs: documents of "
            "one or two sentences have no others. Build the corpus with longer documents, or leave the objective out."
        )

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return how B lies to A."""
        return WORDS[int(labels[0])]

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the fraction of each label."""
        counts = np.bincount([int(example.targets[self.name].labels[0]) for example in examples], minlength=3)
        for name, count in zip(WORDS, counts.tolist(), strict=True):
            yield name, f"{count / max(1, len(examples)):.2%}", "33.33%"

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on the pooled state: three logits for each sequence."""
        from osbert.models.heads.predictions import SequenceHead

        return SequenceHead(backbone, target=self.name, labels=3, form="")


def _far(sentences: Sentences, middles: Places, rng: np.random.Generator) -> Places:
    """Return for each sentence k (s,) a random one of its document that is not next to A = [k, middle); -1 for none."""
    number = np.arange(len(sentences))
    begins = np.searchsorted(sentences.numbers, sentences.numbers)
    # Free are the sentences up to k - 2, and those from middle + 1 on.
    before = np.maximum(0, number - 1 - begins)
    behind = np.maximum(0, sentences.after - middles - 1)
    drawn = (rng.random(len(sentences)) * (before + behind)).astype(np.int64)
    candidates = np.where(drawn < before, begins + drawn, middles + 1 + drawn - before)
    return np.where(before + behind > 0, candidates, -1)


def _walk(following: Places) -> Places:
    """Return the sentences at which pairs begin; the one that begins at k is followed by that at following[k]."""
    firsts, sentence, steps = [], 0, following.tolist()
    while sentence < len(steps):
        firsts.append(sentence)
        sentence = steps[sentence]
    return np.array(firsts, np.int64)
