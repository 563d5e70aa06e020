"""Next-sentence prediction: does text B really follow text A, or is it from another document (section 3.1, task 2)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example, Places
from osbert.data.pack import Packer
from osbert.data.pairs import Elsewhere, pairs, plan_pairs, sentences_of
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
    """Fraction of second texts that come from a random other document."""

    def __post_init__(self) -> None:
        if not 0 <= self.random <= 1:
            raise ValueError(f"random must be a fraction between 0 and 1, not {self.random}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return pairs that walk through each document in turn.

        Sentences are collected up to the target length and split at a random sentence into A and B. If B comes from
        another document, the sentences that it replaced start the next pair. A sentence longer than half a sequence
        counts as several, so that there is always a place to split.

        google-research/bert fills every random B up to the target length. Ours is about as long as the text that it
        replaces: otherwise a short pair at the end of a document would reveal that B follows.
        """
        if sources(documents) < self.fewest_documents:
            raise ValueError("pairs need two documents with text, from two sources")
        sentences = sentences_of(Documents.of(documents), packer)
        # For a pair that would begin at each sentence: its target length, the index of the split, and the end.
        aims, middles, lasts = plan_pairs(sentences, packer, rng)
        firsts, follows = _walk(middles, lasts, rng.random(len(sentences)) >= self.random)
        bounds = sentences.bounds
        # From indices of sentences to indices of pieces.
        starts, parted, ends = (bounds[indices] for indices in (firsts, middles[firsts], lasts[firsts]))
        partners = Elsewhere(sentences).partners(firsts[~follows], rng)
        # As long as the text that is replaced; if there is none, as long as the rest of the target length.
        missing = np.where(ends > parted, ends - parted, aims[firsts] - (parted - starts))[~follows]
        # B is the text from `parted` on, unless it comes from elsewhere.
        second, second_end = parted.copy(), ends.copy()
        second[~follows] = bounds[partners]
        second_end[~follows] = bounds[sentences.reach(partners, missing)]
        labels = np.where(follows, FOLLOWS, ELSEWHERE)
        return pairs(sentences.documents, (starts, parted, second, second_end), packer, rng, {self.name: labels})

    def in_words(self, labels: NDArray[Any]) -> str:
        return "B is from elsewhere" if labels[0] == ELSEWHERE else "B follows A"

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        elsewhere = np.mean([example.targets[self.name].labels[0] == ELSEWHERE for example in examples])
        yield "second texts from elsewhere", f"{elsewhere:.2%}", f"{self.random:.2%}"

    def head(self, backbone: Backbone) -> Head:
        from osbert.models.heads.predictions import SequenceHead

        return SequenceHead(backbone, target=self.name, form="nsp")


def _walk(middles: Places, lasts: Places, wanted: Booleans) -> tuple[Places, Booleans]:
    """Return the sentences at which pairs begin, and whether B follows A in each.

    middles, lasts: for each of s sentences where a pair that begins there is split and where it ends (s,). wanted: the
    label that was sampled for it. A pair with a true B uses all its sentences; one with a random B only those of A.

    A lone sentence (the last of a document, or one longer than the target) cannot have a true B. Its label becomes
    random, and a later random pair becomes a true one in return, so that the fraction of both stays as it was set.
    """
    alone = middles == lasts
    # The first sentence of the next pair, if the sampled label is used.
    following = np.where(wanted, lasts, middles).tolist()
    # Owing: a true pair was sampled, but there is no B. Paying: a random pair that could be a true one.
    owing, paying = (alone & wanted).tolist(), (~alone & ~wanted).tolist()
    firsts: list[int] = []
    repaid: list[int] = []
    sentence = owed = 0
    # A loop in Python: where a pair begins depends on the pair before it.
    while sentence < len(following):
        firsts.append(sentence)
        if owing[sentence]:
            owed += 1
        elif owed and paying[sentence]:
            owed -= 1
            repaid.append(sentence)
            # The pair is a true one now, so that it uses up its B.
            sentence = int(lasts[sentence])
            continue
        sentence = following[sentence]
    follows = wanted & ~alone
    follows[repaid] = True
    return np.array(firsts, np.int64), follows[firsts]
