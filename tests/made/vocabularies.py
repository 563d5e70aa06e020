"""A tokenizer learnt from a few texts in memory, as `osbert tokenizer train` learns one from files."""

from __future__ import annotations

from collections.abc import Iterable

from osbert.text.tokenizer import Tokenizer
from osbert.text.train import WordCounter, learn


def train(
    texts: Iterable[str], *, vocabulary: int = 30522, lowercase: bool = True, alphabet: int = 1000, minimum: int = 2
) -> Tokenizer:
    """Return a tokenizer with a vocabulary learnt from texts; `lowercase` also strips accents. See `learn`."""
    counter = WordCounter(lowercase=lowercase)
    for text in texts:
        counter.add(text)
    pieces = learn(counter.words(), vocabulary=vocabulary, alphabet=alphabet, minimum=minimum)
    return Tokenizer(pieces, lowercase=lowercase)
