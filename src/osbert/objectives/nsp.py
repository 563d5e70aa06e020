"""Next-sentence prediction: does text B really follow text A, or is it from another document (section 3.1, task 2)?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.example import Example, Integers, Target
from osbert.data.pack import PAIR_SPECIALS, Packer, Run, boundaries
from osbert.objectives import Objective
from osbert.text.document import Document

if TYPE_CHECKING:
    from osbert.models.heads import Head
    from osbert.models.transformer import Transformer

FOLLOWS, ELSEWHERE = 0, 1
"""The labels, as google-research/bert and Hugging Face number them: IsNext, NotNext."""


@dataclass(frozen=True, kw_only=True)
class NextSentence(Objective):
    """Pairs of spans of sentences: B follows A in its document, or comes from a random other document."""

    fewest_documents: ClassVar[int] = 2

    random: float = 0.5
    """Share of second texts that come from a random other document."""

    def __post_init__(self) -> None:
        """Refuse a share that is none."""
        if not 0 <= self.random <= 1:
            raise ValueError(f"random is a share between 0 and 1, not {self.random}")

    def examples(
        self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator
    ) -> Iterator[Example] | None:
        """Yield pairs that walk through each document in turn.

        Sentences are gathered up to the length aimed at and parted at a random sentence into A and B; when B is drawn
        from another document, the sentences it displaced are put back and start the next pair. A sentence of more than
        half a sequence counts as several, so that a full gathering can always be parted.

        Where google-research/bert fills every random B up to the length aimed at, ours is about as long as the text it
        displaces: else a short pair at a document's end gives away that B follows.
        """
        longest = (packer.length - PAIR_SPECIALS) // 2
        pool = [_Sentences(document, longest) for document in documents if len(document)]
        if len(pool) < self.fewest_documents:
            raise ValueError("pairs need two documents with text")
        return self._pairs(pool, packer, rng)

    def head(self, backbone: Transformer) -> Head:
        """Return a linear layer on the pooled state, two scores a sequence."""
        from osbert.models.predictions import SequenceHead

        return SequenceHead(backbone, kind="nsp", target=self.name, labels=2)

    def _pairs(self, pool: Sequence[_Sentences], packer: Packer, rng: np.random.Generator) -> Iterator[Example]:
        room = packer.length - PAIR_SPECIALS
        labels = [{self.name: Target(labels=np.array([label]))} for label in (FOLLOWS, ELSEWHERE)]
        firsts = np.cumsum([0, *(document.count for document in pool)])
        owed = 0
        for number, document in enumerate(pool):
            place = 0
            while place < document.count:
                aim = packer.aim(room, rng)
                end = document.reach(place, aim)
                follows = rng.random() >= self.random
                if end - place == 1:
                    # A lone sentence (a last one, or one past a short aim) is no true pair: one more is owed later.
                    owed, follows = owed + follows, False
                elif owed and not follows:
                    owed, follows = owed - 1, True
                middle = int(rng.integers(place + 1, end)) if end - place > 1 else end
                first, second = document.run(place, middle), document.run(middle, end)
                if not follows:
                    other, sentence = _elsewhere(firsts, number, rng)
                    second = pool[other].run(
                        sentence, pool[other].reach(sentence, len(second.ids) or aim - len(first.ids))
                    )
                place = end if follows else middle
                yield packer.random_pair(first, second, rng, labels[FOLLOWS if follows else ELSEWHERE])


class _Sentences:
    """A document's sentences, none longer than `longest`."""

    def __init__(self, document: Document, longest: int) -> None:
        self.document = document
        self.bounds = boundaries(document, longest=longest)
        self.count = len(self.bounds) - 1

    def run(self, first: int, last: int) -> Run:
        """Return the pieces of sentences [first, last)."""
        pieces = slice(self.bounds[first], self.bounds[last])
        return Run(self.document.ids[pieces], self.document.words[pieces])

    def reach(self, first: int, pieces: int) -> int:
        """Return `last` such that sentences [first, last) just reach so many pieces, at least one sentence."""
        return min(max(first + 1, bisect_left(self.bounds, self.bounds[first] + pieces)), self.count)


def _elsewhere(firsts: Integers, number: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return a random sentence of the pool that is not of document `number`, as its document and its place there.

    `firsts` (documents + 1,): how many sentences stand before each document. Each sentence is as likely as any other
    ("a random sentence from the corpus", section 3.1), so a collection of titles does not fill half of all pairs.
    """
    before, after = int(firsts[number]), int(firsts[number + 1])
    drawn = int(rng.integers(int(firsts[-1]) - (after - before)))
    sentence = drawn if drawn < before else drawn + after - before
    other = int(np.searchsorted(firsts, sentence, side="right")) - 1
    return other, sentence - int(firsts[other])
