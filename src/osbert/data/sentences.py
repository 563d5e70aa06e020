"""Sentences of documents, in one row through all of them: how far one reaches, and where a walk through them leads.

Sequences are gathered from whole sentences, one after the other: where one begins depends on where the one before it
ends. So every sentence draws by itself the sequence that would begin there, all at once, and a walk then picks those
that follow one another.
"""

from __future__ import annotations

import numpy as np

from osbert.data.ragged import Places
from osbert.text.document import Documents


class Sentences:
    """The s sentences of some documents that have text; one of more than `longest` pieces counts as several.

    `bounds` (s + 1,): sentence k is the pieces [bounds[k], bounds[k + 1]). `numbers` (s,): which document it is of.
    `after` (s,): the sentence at which the next document begins.
    """

    def __init__(self, documents: Documents, *, longest: int) -> None:
        """Cut what is too long, at word starts where there are any."""
        self.documents = documents
        starts, sizes = documents.sentences[:-1], np.diff(documents.sentences)
        inner = starts[sizes > 0]
        if cuts := _cuts(documents, np.flatnonzero(sizes > longest), longest):
            inner = np.sort(np.concatenate([inner, np.array(cuts)]))
        self.bounds: Places = np.append(inner, len(documents.ids))
        firsts = np.searchsorted(inner, documents.sentences[documents.starts])
        counts = np.diff(firsts)
        self.numbers: Places = np.repeat(np.arange(len(documents)), counts)
        self.after: Places = np.repeat(firsts[1:], counts)

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.numbers)

    def reach(self, firsts: Places, pieces: Places) -> Places:
        """Return `lasts` such that sentences [first, last) of a document just reach so many pieces, at least one."""
        lasts = np.searchsorted(self.bounds, self.bounds[firsts] + pieces)
        return np.minimum(np.maximum(lasts, firsts + 1), self.after[firsts])

    def fit(self, pieces: Places) -> Places:
        """Return, for each of all sentences, `last` such that [it, last) of its document are at most so many pieces.

        One sentence is always taken.
        """
        lasts = np.searchsorted(self.bounds, self.bounds[:-1] + pieces, side="right") - 1
        return np.minimum(np.maximum(lasts, np.arange(1, len(self) + 1)), self.after)

    def fit_across(self, pieces: Places, between: int) -> Places:
        """Return the same where documents follow one another, with `between` special pieces between two."""
        separators = between * np.cumsum(np.diff(self.numbers, prepend=self.numbers[:1]) > 0)
        lasts = np.searchsorted(self.bounds[1:] + separators, self.bounds[:-1] + separators + pieces, side="right")
        return np.maximum(lasts, np.arange(1, len(self) + 1))


def walk(lasts: Places) -> Places:
    """Return the sentences at which sequences begin, given where the one that begins at each sentence would end."""
    following, walked, place = lasts.tolist(), [], 0
    while place < len(following):
        walked.append(place)
        place = following[place]
    return np.array(walked, np.int64)


def _cuts(documents: Documents, long: Places, longest: int) -> list[int]:
    """Return the pieces at which the sentences `long` are cut.

    Each part is as long as it can be and, if it can be, up to a word start.
    """
    words = documents.words.tobytes()
    cuts = []
    for start, end in zip(documents.sentences[long].tolist(), documents.sentences[long + 1].tolist()):
        while end - start > longest:
            word = words.rfind(1, start + 1, start + longest + 1)
            start = start + longest if word < 0 else word
            cuts.append(start)
    return cuts
