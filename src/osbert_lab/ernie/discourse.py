"""Discourse relation: which connective stood between two sentences, and was taken away (ERNIE 2.0, Sun et al. 2020)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Places
from osbert.data.pack import Packer
from osbert.data.pairs import pairs
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.text.document import Document, Documents
from osbert.text.file_tokenizer import AnyTokenizer

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

CONNECTIVES = (
    *("but", "and", "so", "then", "yet", "still", "however", "therefore", "thus", "besides", "instead", "perhaps"),
    *("also", "indeed", "finally", "otherwise", "meanwhile", "moreover", "nevertheless", "for example", "in fact"),
    *("of course", "after all", "at last", "on the contrary", "on the other hand", "as a result", "in addition"),
)
"""Words that begin a sentence and relate it to the one before it."""
COMMAS = (",", "，", "、")


@dataclass(frozen=True, kw_only=True)
class Discourse(Objective):
    """Pairs of neighbouring sentences whose second one began with a connective; the label is the connective.

    Section 3.2.3, with the unsupervised data of Sileo et al. 2019: a sentence that begins with "However," is read after
    the sentence before it, without the connective and the comma behind it, and the model says which it was. Sentences
    without a connective are not read, so the objective is one of several of a curriculum, or stands on its own.
    """

    pairs: ClassVar[bool] = True
    title: ClassVar[str] = "Discourse relation"

    connectives: tuple[str, ...] = CONNECTIVES
    """The connectives, separated by commas, at least two; in lower case. Other languages need their own:
    --discourse.connectives 但是,因此,然而."""

    def __post_init__(self) -> None:
        """Raise ValueError for fewer than two connectives, and for one that is given twice."""
        if len(self.connectives) < 2 or len({*self.connectives}) < len(self.connectives):
            raise ValueError("connectives must be two different ones or more, each once")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return a pair for each sentence with a connective that has a sentence before it in its document."""
        joined = Documents.of(documents)
        firsts, ends, labels = self.find(joined, packer.tokenizer)
        bounds = joined.sentences
        return pairs(
            joined, (bounds[firsts - 1], bounds[firsts], ends, bounds[firsts + 1]), packer, rng, {self.name: labels}
        )

    def find(self, documents: Documents, tokenizer: AnyTokenizer) -> tuple[Places, Places, Places]:
        """Return the sentences (E,) that begin with a connective, the piece behind it, and its number; ascending.

        The sentence before each is not empty and of the same document. Of connectives that begin alike the longest
        counts, and behind it a word must begin.
        """
        ids, bounds = documents.ids.astype(np.int64), documents.sentences
        sizes = np.diff(bounds)
        second = np.ones(len(sizes), np.bool_)
        second[documents.starts[:-1][documents.starts[:-1] < len(second)]] = False  # the first of each document
        candidates = np.flatnonzero(second & (sizes > 0) & (np.concatenate([[0], sizes])[:-1] > 0))
        labels = np.full(len(candidates), -1)
        behind = bounds[candidates]
        words = np.append(documents.words, True)
        commas = [int(comma[0]) for comma in map(tokenizer.encode, COMMAS) if len(comma) == 1]
        spellings = sorted(self._spellings(tokenizer), key=lambda spelling: -len(spelling[0]))
        for pieces, number in spellings:
            starts = bounds[candidates]
            # A connective that is the whole sentence leaves nothing to read.
            fits = (labels < 0) & (sizes[candidates] > len(pieces))
            for offset, piece in enumerate(pieces):
                fits &= ids.take(starts + offset, mode="clip") == piece
            fits &= words.take(starts + len(pieces), mode="clip")
            labels[fits], behind[fits] = number, starts[fits] + len(pieces)
        comma = np.isin(ids.take(behind, mode="clip"), commas) & (labels >= 0)
        behind = behind + comma
        usable = (labels >= 0) & (behind < bounds[candidates + 1])
        return candidates[usable], behind[usable], labels[usable]

    def _spellings(self, tokenizer: AnyTokenizer) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the pieces of each connective as it may begin a sentence, with its number; none with unknown pieces."""
        for number, connective in enumerate(self.connectives):
            forms = [connective, connective[:1].upper() + connective[1:]]
            forms += [f" {form}" for form in forms] if tokenizer.spaced else []
            for pieces in {tuple(tokenizer.encode(form).tolist()) for form in forms}:
                if pieces and tokenizer.unknown not in pieces:
                    yield pieces, number

    def idle(self, sequences: Sequences) -> str:
        """Return a remark if the sequences have few connectives."""
        labels = sequences.labels.get(self.name)
        kinds = len(self.connectives) if labels is None else len(np.unique(labels))
        if 2 * kinds > len(self.connectives):
            return ""
        return (
            f"{self.name} finds {kinds} of its {len(self.connectives)} connectives at the beginning of sentences. Give "
            f"those of the language, --{self.name}.connectives, or leave the objective out."
        )

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return the connective."""
        return f"'{self.connectives[int(labels[0])]}' stood between them"

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the fractions of the most frequent connectives."""
        labels = [int(example.targets[self.name].labels[0]) for example in examples]
        counts = np.bincount(labels, minlength=len(self.connectives))
        for number in np.argsort(-counts, kind="stable")[:5].tolist():
            yield self.connectives[number], f"{counts[number] / max(1, len(labels)):.2%}", "as in the text"

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on the pooled state: one logit for each connective."""
        from osbert.models.heads.predictions import SequenceHead

        return SequenceHead(backbone, target=self.name, labels=len(self.connectives), form="")
