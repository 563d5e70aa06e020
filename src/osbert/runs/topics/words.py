"""The words that tell a topic from the others: class-based TF-IDF (Grootendorst 2022, section 3.3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from osbert.text.terms import terms

MOST = 4_000_000
"""Words of all topics together that are counted at a time; beyond, those counted once are dropped."""
SURPLUS = 0.25
"""A word belongs to a topic if the part of its occurrences there lies at least so far between chance and all."""


def topic_words(rows: Iterable[tuple[int, str]], count: int, *, most: int = 10) -> list[list[tuple[str, float]]]:
    """Return the `most` words of each of `count` topics with their weights, the heaviest first; rows: (topic, text).

    A word t weighs tf(t, c) ln(1 + A / tf(t)) in topic c: tf(t, c) is its part of the topic's words, tf(t) its
    occurrences in all topics, and A the mean number of words of a topic. Words that are about as frequent everywhere,
    such as articles, are left out in any language: see SURPLUS. So are numbers, and single letters.

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
        weights = {
            word: number / size * math.log(1 + everything / count / totals[word])
            for word, number in one.items()
            if number / totals[word] >= chance + SURPLUS * (1 - chance)
        }
        found.append(sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:most])
    return found
