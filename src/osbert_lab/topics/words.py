"""Characteristic words of topics: TF-IDF by topic, without function words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from osbert.text.words import terms
from osbert_lab.languages import function_words, short_words

MOST = 4_000_000
"""Most distinct words in all counters together; above it, words with a count of 1 are dropped."""


def topic_words(rows: Iterable[tuple[int, str]], count: int, *, most: int = 10) -> list[list[tuple[str, float]]]:
    """Return the `most` words of each of `count` topics with their weights, the heaviest first; rows: (topic, text).

    The weight of word t in topic c is n(t, c) / n(c) ln(n / n(t)) s(t, c). n counts texts: n(t, c) those of the topic
    with the word, n(c) all of the topic, n(t) all with the word, and n all. The logarithm is the inverse document
    frequency, near 0 for words of nearly all texts in any language. s is the fraction of the texts with the word that
    are in the topic, rescaled so that chance is 0 and all is 1. Function words of the languages that the texts are in
    (osbert_lab.languages), numbers and single letters are left out.

    >>> [[word for word, weight in words] for words in topic_words([(0, "the cat sat"), (1, "the dog ran")], 2)]
    [['cat', 'sat'], ['dog', 'ran']]
    """
    counts: list[Counter[str]] = [Counter() for _ in range(count)]
    sizes = [0] * count
    short: Counter[str] = Counter()
    total = 0
    for topic, text in rows:
        words = terms(text)
        short.update(short_words(words))
        total += len(words)
        counts[topic].update({word for word in words if len(word) > 1 and not word.isdecimal()})
        sizes[topic] += 1
        if sum(map(len, counts)) > MOST:
            counts = [Counter({word: number for word, number in counter.items() if number > 1}) for counter in counts]
    everywhere: Counter[str] = Counter()
    for counter in counts:
        everywhere.update(counter)
    left_out, texts = function_words(short, total), sum(sizes)
    topic_weights = []
    for counter, size in zip(counts, sizes, strict=True):
        chance = size / max(texts, 1)
        weights = [
            (word, number / size * math.log(texts / everywhere[word]) * surplus)
            for word, number in counter.items()
            if word not in left_out and (surplus := (number / everywhere[word] - chance) / max(1 - chance, 1e-9)) > 0
        ]
        topic_weights.append(sorted(weights, key=lambda pair: (-pair[1], pair[0]))[:most])
    return topic_weights
