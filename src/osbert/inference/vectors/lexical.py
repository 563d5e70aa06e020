"""Lexical search by BM25, and reciprocal rank fusion with the ranking of the vectors."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from osbert.text.words import terms

K1, B = 1.2, 0.75
"""BM25's k1 (saturation of term frequency) and b (length normalisation), at their usual values."""
RANK = 60
"""The constant of reciprocal rank fusion (Cormack et al. 2009, section 2)."""


def bm25(texts: Iterable[str], queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
    """Return (index, score) of the `count` texts with the highest BM25 scores for each query, the highest first.

    Robertson & Zaragoza 2009, equation 3.15, with idf ln(1 + (n - df + 0.5) / (df + 0.5)), which is never negative.
    The texts are read once. Memory grows with the occurrences of the queries' words only.

    >>> ((place, score),) = bm25(["a cat", "a dog", "a bird"], ["the cat"], 5)[0]
    >>> place, round(score, 3)
    (0, 0.981)
    """
    wanted = {word for query in queries for word in terms(query)}
    postings: dict[str, list[tuple[int, int, int]]] = defaultdict(list)  # (place, occurrences, length of the text)
    texts_read = words_read = 0
    for index, text in enumerate(texts):
        words = terms(text)
        texts_read, words_read = index + 1, words_read + len(words)
        for word, occurrences in Counter(word for word in words if word in wanted).items():
            postings[word].append((index, occurrences, len(words)))
    mean = words_read / max(texts_read, 1)
    rankings = []
    for query in queries:
        scores: dict[int, float] = defaultdict(float)
        for word in terms(query):
            rows = postings.get(word, ())
            idf = math.log(1 + (texts_read - len(rows) + 0.5) / (len(rows) + 0.5))
            for index, occurrences, length in rows:
                scores[index] += idf * occurrences * (K1 + 1) / (occurrences + K1 * (1 - B + B * length / mean))
        rankings.append(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:count])
    return rankings


def fuse_rankings(rankings: Sequence[Sequence[int]], count: int) -> list[int]:
    """Return the `count` indices with the largest sum of 1 / (60 + rank) over the rankings (reciprocal rank fusion).

    >>> fuse_rankings([[3, 1, 2], [2, 3]], 2)
    [3, 2]
    """
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, index in enumerate(ranking, 1):
            scores[index] += 1 / (RANK + rank)
    return sorted(scores, key=lambda index: (-scores[index], index))[:count]
