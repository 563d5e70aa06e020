"""Next-sentence prediction: does text B really follow text A, or is it from another document (section 3.1, task 2)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example
from osbert.data.pack import Packer
from osbert.data.pairs import Elsewhere, gathered, pairs, sentences_of
from osbert.data.ragged import Places
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.text.document import Document, Documents, sources

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

FOLLOWS, ELSEWHERE = 0, 1
"""The labels, as google-research/bert and Hugging Face number them: IsNext, NotNext."""


@dataclass(frozen=True, kw_only=True)
class NextSentence(Objective):
    """Pairs of spans of sentences: B follows A in its document, or comes from a random other document.

    Parts of one source, such as a book that is cut over shards, are not other documents to each other.
    """

    pairs: ClassVar[bool] = True
    fewest_documents: ClassVar[int] = 2
    title: ClassVar[str] = "Next-sentence prediction"
    answers: ClassVar[Literal["pair"]] = "pair"

    random: float = 0.5
    """Share of second texts that come from a random other document."""

    def __post_init__(self) -> None:
        """Refuse a share that is none."""
        if not 0 <= self.random <= 1:
            raise ValueError(f"random is a share between 0 and 1, not {self.random}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return pairs that walk through each document in turn.

        Sentences are gathered up to the length aimed at and parted at a random sentence into A and B; when B is drawn
        from another document, the sentences it displaced are put back and start the next pair. A sentence of more than
        half a sequence counts as several, so that a full gathering can always be parted.

        Where google-research/bert fills every random B up to the length aimed at, ours is about as long as the text it
        displaces: else a short pair at a document's end gives away that B follows.
        """
        if sources(documents) < self.fewest_documents:
            raise ValueError("pairs need two documents with text, of two sources")
        sentences = sentences_of(Documents.of(documents), packer)
        aims, middles, lasts = gathered(sentences, packer, rng)
        firsts, follows = _walk(middles, lasts, rng.random(len(sentences)) >= self.random)
        bounds = sentences.bounds
        starts, parted, ends = (bounds[places] for places in (firsts, middles[firsts], lasts[firsts]))
        partners = Elsewhere(sentences).partners(firsts[~follows], rng)
        # As long as the text that is displaced; where there is none, as what is left of the aim.
        missing = np.where(ends > parted, ends - parted, aims[firsts] - (parted - starts))[~follows]
        second, second_end = parted.copy(), ends.copy()
        second[~follows] = bounds[partners]
        second_end[~follows] = bounds[sentences.reach(partners, missing)]
        labels = np.where(follows, FOLLOWS, ELSEWHERE)
        return pairs(sentences.documents, (starts, parted, second, second_end), packer, rng, {self.name: labels})

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return whether B follows A."""
        return "B is from elsewhere" if labels[0] == ELSEWHERE else "B follows A"

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the share of second texts that come from elsewhere."""
        elsewhere = np.mean([example.targets[self.name].labels[0] == ELSEWHERE for example in examples])
        yield "second texts from elsewhere", f"{elsewhere:.2%}", f"{self.random:.2%}"

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on the pooled state, two scores a sequence."""
        from osbert.models.heads.predictions import SequenceHead

        return SequenceHead(backbone, target=self.name, form="nsp")


def _walk(middles: Places, lasts: Places, wanted: Booleans) -> tuple[Places, Booleans]:
    """Return the sentences at which pairs begin and whether B follows, given what each of s sentences has drawn.

    A pair that follows uses up all its sentences; one with a B from elsewhere, only those of A. A lone sentence (a last
    one, or one past a short aim) is no true pair: one more is owed later.
    """
    alone = middles == lasts
    following = np.where(wanted, lasts, middles).tolist()
    owing, paying = (alone & wanted).tolist(), (~alone & ~wanted).tolist()
    firsts: list[int] = []
    repaid: list[int] = []
    place = owed = 0
    while place < len(following):
        firsts.append(place)
        if owing[place]:
            owed += 1
        elif owed and paying[place]:
            owed -= 1
            repaid.append(place)
            place = int(lasts[place])
            continue
        place = following[place]
    follows = wanted & ~alone
    follows[repaid] = True
    return np.array(firsts, np.int64), follows[firsts]
