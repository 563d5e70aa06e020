"""Dialogue: three turns of a conversation, one of them perhaps of another one; is it real (ERNIE 1.0)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.pack import Packer, Sentences
from osbert.data.pairs import Elsewhere
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.text.document import Document, Documents, sources
from osbert.text.tokenizer import Form

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

REAL, FAKE = 0, 1
TURNS = 3


@dataclass(frozen=True, kw_only=True)
class Dialogue(Objective):
    """Sequences of three consecutive turns, in some of which a turn is replaced by one of another document.

    Sun et al. 2019, section 3.3 (the dialogue language model). A document is a conversation and each of its sentences a
    turn; two speakers alternate. The role of a turn stands in place of its segment: 0 for the first speaker of the
    document, 1 for the other one, so rows have the roles 0 1 0 or 1 0 1. With mlm after it, all turns are masked, too.
    """

    pairs: ClassVar[bool] = True
    fewest_documents: ClassVar[int] = 2
    title: ClassVar[str] = "Dialogue"
    answers: ClassVar[Literal["pair"]] = "pair"

    fake: float = 0.5
    """Fraction of sequences in which a turn is replaced."""

    def __post_init__(self) -> None:
        """Raise ValueError for a fraction out of range."""
        if not 0 <= self.fake <= 1:
            raise ValueError(f"fake must be a fraction between 0 and 1, not {self.fake}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return three turns each, [CLS] a [SEP] b [SEP] c [SEP]; conversations of fewer turns are left out.

        A turn has at most a third of a sequence; a longer one counts as several of its speaker.
        """
        if packer.length < self.shortest(packer.form):
            raise ValueError(f"three turns need {self.shortest(packer.form)} tokens, not {packer.length}")
        if sources(documents) < self.fewest_documents:
            raise ValueError("fake turns come from another source, but there is only one source")
        room = packer.length - self.shortest(packer.form) + TURNS
        turns = Sentences(Documents.of(documents), longest=room // TURNS)
        roles = self._roles(turns)
        begins = np.searchsorted(turns.numbers, turns.numbers)
        # Rows begin at every third turn of a conversation, while two more follow.
        firsts = np.flatnonzero(((np.arange(len(turns)) - begins) % TURNS == 0) & (self._after(turns) >= TURNS))
        turn_indices = firsts[:, None] + np.arange(TURNS)  # (E, 3)
        segments = roles[turn_indices].astype(np.int8) * packer.form.second_segment
        fake = np.flatnonzero(rng.random(len(firsts)) < self.fake)
        turn_indices[fake, rng.integers(TURNS, size=len(fake))] = Elsewhere(turns).partners(firsts[fake], rng)
        labels = np.full(len(firsts), REAL)
        labels[fake] = FAKE
        return Sequences(
            documents=turns.documents,
            tokenizer=packer.tokenizer,
            firsts=turns.bounds[turn_indices].ravel(),
            sizes=(turns.bounds[turn_indices + 1] - turns.bounds[turn_indices]).ravel(),
            segments=segments.ravel(),
            counts=np.full(len(firsts), TURNS),
            truncated=np.zeros(len(firsts), np.int64),
            labels={self.name: labels},
        )

    def shortest(self, form: Form) -> int:
        """Return the special pieces around and between the turns, and one piece of each."""
        return form.specials(1) + (TURNS - 1) * len(form.between) + TURNS

    @staticmethod
    def _after(turns: Sentences) -> NDArray[np.int64]:
        """Return the number of turns of the conversation from each one on, itself included (s,)."""
        return turns.after - np.arange(len(turns))

    @staticmethod
    def _roles(turns: Sentences) -> NDArray[np.int64]:
        """Return the speaker of each turn, 0 or 1 (s,); all parts of a cut turn have the same one."""
        documents = turns.documents
        sentence = np.searchsorted(documents.sentences, turns.bounds[:-1], side="right") - 1
        return (sentence - documents.starts[turns.numbers]) % 2

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return whether all turns are of one conversation."""
        return "a turn is from elsewhere" if labels[0] == FAKE else "a real conversation"

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the fraction of sequences with a replaced turn."""
        fake = np.mean([example.targets[self.name].labels[0] == FAKE for example in examples])
        yield "conversations with a turn from elsewhere", f"{fake:.2%}", f"{self.fake:.2%}"

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on the pooled state: two logits for each sequence."""
        from osbert.models.heads.predictions import SequenceHead

        return SequenceHead(backbone, target=self.name, form="")
