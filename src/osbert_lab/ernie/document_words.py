"""Token-document relation: does a token also occur in the rest of its document (ERNIE 2.0, Sun et al. 2020)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Places
from osbert.data.pack import Packer
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.text.document import Document, Documents

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


LEAST = 0.01
"""Fraction of the label 1 below which there is little to learn."""


@dataclass(frozen=True, kw_only=True)
class DocumentWords(Objective):
    """Labels each token of a sequence: 1 if its piece occurs in the document outside of the sequence, else 0.

    Section 3.2.1: words that return in other parts of a document are often its key words. The part of a document that
    is in the same pool of the loader counts as the document.
    """

    title: ClassVar[str] = "Token-document relation"

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return full spans of the documents, with a label for every piece."""
        sequences = packer.spans(documents, rng)
        return replace(sequences, piece_labels={self.name: recurring(sequences)})

    def idle(self, sequences: Sequences) -> str:
        """Return a remark if hardly any document is longer than a sequence, so that nearly all labels are 0."""
        labels = sequences.piece_labels.get(self.name, np.zeros(0, np.int8))
        ones, count = int((labels == 1).sum()), int((labels >= 0).sum())
        if ones >= LEAST * count:
            return ""
        return (
            f"{self.name} has the label 1 for {ones:,} of {count:,} tokens: hardly any document is longer than a "
            "sequence. Build the corpus with longer documents, or set a shorter data.length."
        )

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return the fraction of tokens that occur elsewhere in the document."""
        return f"{np.mean(labels):.0%} of the tokens return in the document"

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on each token's state: two logits."""
        from osbert.models.heads.tagging import TagHead

        head = TagHead(backbone, target=self.name, labels=2)
        head.form = ""  # a published folder has room for one classifier of tokens, that of a task
        return head


def recurring(sequences: Sequences) -> NDArray[np.int8]:
    """Return for each piece of the documents (n,) whether it also occurs outside of its sequence; -1 if in none.

    "a" and "b" are in both sequences of the document, "c" is in the second one alone, twice:

    >>> from osbert.text.tokenizer import SPECIALS, Tokenizer
    >>> tokenizer = Tokenizer([*SPECIALS, "a", "b", "c"])
    >>> ids, bounds = tokenizer.encode("a b a c c b"), np.array([0, 2, 6])
    >>> document = Document(ids=ids, sentences=bounds, words=np.ones(6, np.bool_))
    >>> packer = Packer(tokenizer=tokenizer, length=6, short=0)
    >>> recurring(packer.spans([document], np.random.default_rng(0))).tolist()
    [1, 1, 1, 0, 0, 1]
    """
    documents = sequences.documents
    ids = documents.ids.astype(np.int64)
    sequence = np.full(len(ids), -1)
    # Runs are consecutive and disjoint, so repeat() writes the number of the sequence to each of its pieces.
    owners = np.repeat(np.arange(len(sequences)), sequences.counts)
    offsets = np.repeat(sequences.firsts - np.cumsum(sequences.sizes) + sequences.sizes, sequences.sizes)
    sequence[offsets + np.arange(len(offsets))] = np.repeat(owners, sequences.sizes)
    labels = (_occurrences(_document_of(documents), ids) > _occurrences(sequence, ids)).astype(np.int8)
    labels[sequence < 0] = -1
    return labels


def _document_of(documents: Documents) -> Places:
    """Return the number of the document of each piece (n,)."""
    return np.repeat(np.arange(len(documents)), np.diff(documents.sentences[documents.starts]))


def _occurrences(parts: Places, ids: Places) -> Places:
    """Return how often each piece occurs in its part (n,)."""
    keys = parts * (int(ids.max(initial=0)) + 1) + ids
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return counts[which]
