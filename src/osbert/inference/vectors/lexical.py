"""Lexical search by BM25."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.text.words import terms

K1, B = 1.2, 0.75
"""BM25's k1 (saturation of term frequency) and b (length normalisation), at their usual values."""


def bm25(
    texts: Iterable[str], queries: Sequence[str], count: int, indices: NDArray[np.int64] | None = None
) -> list[list[tuple[int, float]]]:
    """Return (index, score) of the `count` texts with the highest BM25 scores for each query, the highest first.

    Of equal scores the lower index comes first; `indices` (n,): what stands for the texts, by default their numbers.
    Only texts with a word of the query are returned. The texts are read once. Memory grows with the occurrences of the
    queries' words only.

    >>> ((place, score),) = bm25(["a cat", "a dog", "a bird"], ["the cat"], 5)[0]
    >>> place, round(score, 3)
    (0, 0.981)
    """
    rankings = []
    for scores in bm25_scores(texts, queries):
        indices = np.arange(len(scores)) if indices is None else indices
        hits = np.flatnonzero(scores)
        if len(hits) > count:
            hits = hits[scores[hits] >= np.partition(scores[hits], -count)[-count]]
        best = hits[np.lexsort((indices[hits], -scores[hits]))][:count]
        rankings.append(list(zip(indices[best].tolist(), scores[best].tolist(), strict=True)))
    return rankings


def bm25_scores(texts: Iterable[str], queries: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """Yield the BM25 scores (n,) of n texts for each query, which are 0 for texts without a word of it.

    Robertson & Zaragoza 2009, equation 3.15, with idf ln(1 + (n - df + 0.5) / (df + 0.5)), which is never negative.
    """
    wanted = {word for query in queries for word in terms(query)}
    postings: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
    text_lengths = array("q")
    for index, text in enumerate(texts):
        words = terms(text)
        text_lengths.append(len(words))
        for word, occurrences in Counter(word for word in words if word in wanted).items():
            postings[word][0].append(index)
            postings[word][1].append(occurrences)
    lengths = np.array(text_lengths, np.float64)
    normalizers = K1 * (1 - B + B * lengths / max(lengths.mean(), 1)) if len(lengths) else lengths
    for query in queries:
        scores = np.zeros(len(lengths))
        for word in terms(query):
            rows, frequencies = (np.frombuffer(column, np.int64) for column in postings.get(word, (b"", b"")))
            idf = math.log(1 + (len(lengths) - len(rows) + 0.5) / (len(rows) + 0.5))
            scores[rows] += idf * frequencies * (K1 + 1) / (frequencies + normalizers[rows])
        yield scores
