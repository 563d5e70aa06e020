"""Sentences of documents, numbered through all documents: how many fill a sequence, and where sequences begin.

Sequences consist of whole sentences, and each begins where the one before it ends. To vectorise that, the sequence
that would begin at every sentence is computed at once; then `walk` picks those that follow one another.
"""

from __future__ import annotations

import numpy as np

from osbert.data.ragged import Places
from osbert.text.document import Documents


class Sentences:
    """The s non-empty sentences of some documents. A sentence of more than `longest` pieces counts as several.

    `bounds` (s + 1,): sentence k is the pieces [bounds[k], bounds[k + 1]). `numbers` (s,): index of its document.
    `after` (s,): index of the first sentence of the next document.
    """

    def __init__(self, documents: Documents, *, longest: int) -> None:
        """Cut the sentences that are too long, at word starts if possible. Raises ValueError for `longest` below 1."""
        if longest < 1:  # no cut would ever be short enough
            raise ValueError(f"a sentence must have at least one piece, not {longest}")
        self.documents = documents
        starts, sizes = documents.sentences[:-1], np.diff(documents.sentences)
        inner = starts[sizes > 0]
        if cuts := _cuts(documents, np.flatnonzero(sizes > longest), longest):
            inner = np.sort(np.concatenate([inner, np.array(cuts)]))
        self.bounds: Places = np.append(inner, len(documents.ids))
        # The first sentence of each document among those that are left, and the number of sentences behind the last.
        firsts = np.searchsorted(inner, documents.sentences[documents.starts])
        counts = np.diff(firsts)
        # For each sentence: its document, and the sentence behind the last one of that document.
        self.numbers: Places = np.repeat(np.arange(len(documents)), counts)
        self.after: Places = np.repeat(firsts[1:], counts)

    def __len__(self) -> int:
        """Return s, the number of sentences after cutting."""
        return len(self.numbers)

    def reach(self, firsts: Places, pieces: Places) -> Places:
        """Return `lasts` (K,): sentences [first, last) are the fewest (>= 1) with `pieces`, or end the document."""
        # bounds is ascending: the first bound at or beyond the target ends the sequence.
        lasts = np.searchsorted(self.bounds, self.bounds[firsts] + pieces)
        return np.minimum(np.maximum(lasts, firsts + 1), self.after[firsts])

    def fit(self, pieces: Places) -> Places:
        """Return `lasts` (s,): sentences [k, last) are the most with at most `pieces` (s,), within the document.

        There is always at least one.
        """
        # The last bound that is not beyond the target.
        lasts = np.searchsorted(self.bounds, self.bounds[:-1] + pieces, side="right") - 1
        return np.minimum(np.maximum(lasts, np.arange(1, len(self) + 1)), self.after)

    def fit_across(self, pieces: Places, between: int) -> Places:
        """Return `lasts` as `fit` does, but across documents, with `between` special pieces between two."""
        # Special pieces before each sentence: `between` at each change of document.
        separators = between * np.cumsum(np.diff(self.numbers, prepend=self.numbers[:1]) > 0)
        lasts = np.searchsorted(self.bounds[1:] + separators, self.bounds[:-1] + separators + pieces, side="right")
        return np.maximum(lasts, np.arange(1, len(self) + 1))


def walk(lasts: Places) -> Places:
    """Return the sentences (E,) at which sequences begin. A sequence from sentence k would end before lasts[k]."""
    # A plain list: indexing numpy arrays item by item is several times slower.
    following, walked, sentence = lasts.tolist(), [], 0
    while sentence < len(following):
        walked.append(sentence)
        sentence = following[sentence]
    return np.array(walked, np.int64)


def _cuts(documents: Documents, long: Places, longest: int) -> list[int]:
    """Return the pieces at which the sentences with the indices `long` are cut.

    Each part is as long as possible, and ends before a word start if there is one.
    """
    # As bytes, because rfind searches backwards in C.
    words = documents.words.tobytes()
    cuts = []
    for start, end in zip(documents.sentences[long].tolist(), documents.sentences[long + 1].tolist()):
        while end - start > longest:
            word = words.rfind(1, start + 1, start + longest + 1)
            start = start + longest if word < 0 else word
            cuts.append(start)
    return cuts
