"""Characteristic words of topics: class-based TF-IDF (Grootendorst 2022, section 3.3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from osbert.text.terms import terms

MOST = 4_000_000
"""Most distinct words in all counters together; above it, words with a count of 1 are dropped."""


def topic_words(rows: Iterable[tuple[int, str]], count: int, *, most: int = 10) -> list[list[tuple[str, float]]]:
    """Return the `most` words of each of `count` topics with their weights, the heaviest first; rows: (topic, text).

    The weight of word t in topic c is tf(t, c) ln(1 + A / tf(t)) s(t, c). tf(t, c) is its fraction of the topic's
    words, tf(t) its occurrences in all topics, and A the mean number of words of a topic. s is our addition: the
    fraction of the word's occurrences in the topic, rescaled so that chance is 0 and all is 1. Without it function
    words come first, in any language. Numbers and single letters are left out.

    >>> [[word for word, weight in words] for words in topic_words([(0, "the cat sat"), (1, "the dog ran")], 2)]
    [['cat', 'sat'], ['dog', 'ran']]
    """
    counts: list[Counter[str]] = [Counter() for _ in range(count)]
    sizes = [0] * count
    for topic, text in rows:
        words = [word for word in terms(text) if len(word) > 1 and not word.isdecimal()]
        counts[topic].update(words)
        sizes[topic] += len(words)
        if sum(map(len, counts)) > MOST:
            counts = [Counter({word: number for word, number in one.items() if number > 1}) for one in counts]
    totals: Counter[str] = Counter()
    for one in counts:
        totals.update(one)
    everything = max(sum(sizes), 1)
    found = []
    for one, size in zip(counts, sizes, strict=True):
        chance = size / everything
        weights = [
            (word, number / size * math.log(1 + everything / count / totals[word]) * surplus)
            for word, number in one.items()
            if (surplus := (number / totals[word] - chance) / max(1 - chance, 1e-9)) > 0
        ]
        found.append(sorted(weights, key=lambda pair: (-pair[1], pair[0]))[:most])
    return found
