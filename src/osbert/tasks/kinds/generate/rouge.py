"""ROUGE (Lin 2004): how many words, pairs of words, and words in order a text shares with a reference.

The words and the scores are those of Google's rouge-score without its stemmer, which tests hold equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_OTHER = re.compile(r"[^a-z0-9]+")


def rouge_words(text: str) -> list[str]:
    """Return the words that are compared: runs of small Latin letters and digits. Other scripts have none.

    >>> rouge_words("Don't panic, Zoë!")
    ['don', 't', 'panic', 'zo']
    """
    return _OTHER.sub(" ", text.lower()).split()


def rouge_n(guess: Sequence[str], reference: Sequence[str], n: int) -> float:
    """Return the F1 of two texts' runs of `n` words, each as often as it stands in both.

    >>> round(rouge_n("the cat sat".split(), "the cat sat down".split(), 2), 3)
    0.8
    """
    ours, theirs = (Counter(zip(*(words[start:] for start in range(n)))) for words in (guess, reference))
    return _f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(guess: Sequence[str], reference: Sequence[str]) -> float:
    """Return the F1 of the longest common subsequence of two texts' words.

    >>> round(rouge_l("a b c d".split(), "a x c d".split()), 3)
    0.75
    """
    return _f1(common_subsequence(guess, reference), len(guess), len(reference))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, by rows of bits (Hyyrö 2004).

    Bit i of a row is 0 where the table of lengths grows from column i to the next; a row follows from the one before
    by a sum, whose carries do what a loop over columns would.

    >>> common_subsequence("abcbdab", "bdcaba")
    4
    """
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(first)) - 1
    row = every
    for word in second:
        matches = row & places.get(word, 0)
        row = (row + matches) | (row - matches)
    return len(first) - (row & every).bit_count()


def _f1(shared: int, ours: int, theirs: int) -> float:
    return 2 * shared / (ours + theirs) if shared else 0.0
