"""Documents of a sentence and its translation, and where both begin and end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from osbert.data.example import Places
from osbert.text.document import Document, Documents

SENTENCES = 2
"""Sentences of a document: a text and its translation."""


def find_pairs(documents: Sequence[Document]) -> tuple[Documents, Places]:
    """Return the documents as one text, and of each that is a pair the bounds (E, 3) of both sentences, in pieces."""
    joined = Documents.of(documents)
    pairs = np.diff(joined.starts) == SENTENCES
    if joined.cut is not None:  # two sentences of a longer document are no pair
        pairs &= ~joined.cut
    firsts = joined.starts[:-1][pairs]
    return joined, joined.sentences[firsts[:, None] + np.arange(SENTENCES + 1)]
