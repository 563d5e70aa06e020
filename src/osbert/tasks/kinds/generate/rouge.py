"""ROUGE (Lin 2004): overlap of a text with a reference in words, pairs of words, and words in order.

The words and the scores are those of Google's rouge-score without its stemmer, which tests hold equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_OTHER = re.compile(r"[^a-z0-9]+")


def rouge_words(text: str) -> list[str]:
    """Return the words to compare: runs of lower-case Latin letters and digits. Other scripts have none.

    >>> rouge_words("Don't panic, Zoë!")
    ['don', 't', 'panic', 'zo']
    """
    return _OTHER.sub(" ", text.lower()).split()


def rouge_n(guess: Sequence[str], reference: Sequence[str], n: int) -> float:
    """Return the F1 of the multisets of two texts' runs of `n` words.

    >>> round(rouge_n("the cat sat".split(), "the cat sat down".split(), 2), 3)
    0.8
    """
    guess_runs, reference_runs = (Counter(zip(*(words[start:] for start in range(n)))) for words in (guess, reference))
    return _f1((guess_runs & reference_runs).total(), guess_runs.total(), reference_runs.total())


def rouge_l(guess: Sequence[str], reference: Sequence[str]) -> float:
    """Return the F1 of the longest common subsequence of two texts' words.

    >>> round(rouge_l("a b c d".split(), "a x c d".split()), 3)
    0.75
    """
    return _f1(common_subsequence(guess, reference), len(guess), len(reference))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, with bit-parallel rows (Hyyrö 2004).

    Bit i of a row is 0 if the table of lengths increases from column i to the next. One addition yields the next row;
    its carries replace a loop over columns.

    >>> common_subsequence("abcbdab", "bdcaba")
    4
    """
    positions: dict[str, int] = {}
    for position, word in enumerate(first):
        # The set of each word's positions, as bits of an integer of any length.
        positions[word] = positions.get(word, 0) | 1 << position
    every = (1 << len(first)) - 1
    row = every
    for word in second:
        matches = row & positions.get(word, 0)
        row = (row + matches) | (row - matches)
    # The sums carry beyond the last column: mask these bits. The length is the number of 0 bits.
    return len(first) - (row & every).bit_count()


def _f1(shared: int, guess_size: int, reference_size: int) -> float:
    return 2 * shared / (guess_size + reference_size) if shared else 0.0
