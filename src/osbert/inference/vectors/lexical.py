"""Lexical search by BM25."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from osbert.text.words import characters_within, fold_text, terms

K1, B = 1.2, 0.75
"""BM25's k1 (saturation of term frequency) and b (length normalisation), at their usual values."""
SHORT = 2
"""Most terms of a query that may be words of a single character, such as 猫狗 (cat, dog)."""


class BM25Index:
    """An inverted index of texts for BM25 (Robertson & Zaragoza 2009, equation 3.15).

    Words are compared without case, Latin accents and forms of width. The idf is ln(1 + (n - df + 0.5) / (df + 0.5)),
    which is never negative.

    >>> index = BM25Index(["a cat", "a dog", "a bird"])
    >>> [(text_index, round(score, 3)) for text_index, score in index.rank("a cat", 2)]
    [(0, 1.114), (1, 0.134)]
    >>> {word: round(fraction, 2) for word, fraction in index.explain("a cat", 0).items()}
    {'cat': 0.88, 'a': 0.12}
    """

    def __init__(self, texts: Iterable[str], words: Collection[str] | None = None) -> None:
        """Read the texts once. Only `words` are indexed, by default all: memory grows with their occurrences."""
        self.postings: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
        text_lengths = array("q")
        for index, text in enumerate(map(fold_text, texts)):
            text_words = terms(text)
            text_lengths.append(len(text_words))
            # A query of one ideograph finds it within words. They count for no length: the scores of words stay.
            text_words += characters_within(text)
            indexed = text_words if words is None else (word for word in text_words if word in words)
            for word, occurrences in Counter(indexed).items():
                self.postings[word][0].append(index)
                self.postings[word][1].append(occurrences)
        lengths = np.array(text_lengths, np.float64)
        self.normalizers = K1 * (1 - B + B * lengths / max(lengths.mean(), 1)) if len(lengths) else lengths

    @classmethod
    def of_queries(cls, texts: Iterable[str], queries: Sequence[str]) -> Self:
        """Return an index of the words of the queries alone."""
        folded = map(fold_text, queries)
        return cls(texts, {word for query in folded for word in (*terms(query), *_short_characters(query))})

    def scores(self, query: str) -> NDArray[np.float64]:
        """Return the scores (n,) of the n texts, which are 0 for texts without a word of the query."""
        scores = np.zeros(len(self.normalizers))
        for word in self._query_terms(query):
            rows, amounts = self._score_word(word)
            scores[rows] += amounts
        return scores

    def rank(self, query: str, count: int, indices: NDArray[np.int64] | None = None) -> list[tuple[int, float]]:
        """Return (index, score) of the `count` texts with the highest scores, the highest first.

        Of equal scores the lower index comes first; `indices` (n,): what stands for the texts, by default their
        numbers. Only texts with a word of the query are returned.
        """
        scores = self.scores(query)
        indices = np.arange(len(scores)) if indices is None else indices
        hits = np.flatnonzero(scores)
        if len(hits) > count:
            hits = hits[scores[hits] >= np.partition(scores[hits], -count)[-count]]
        best = hits[np.lexsort((indices[hits], -scores[hits]))][:count]
        return list(zip(indices[best].tolist(), scores[best].tolist(), strict=True))

    def explain(self, query: str, index: int) -> dict[str, float]:
        """Return the words that a query has in common with the text at `index`, with their fractions of its score."""
        amounts: dict[str, float] = defaultdict(float)
        for word in self._query_terms(query):
            rows, of_rows = self._score_word(word)
            position = int(np.searchsorted(rows, index))
            if position < len(rows) and rows[position] == index:
                amounts[word] += float(of_rows[position])
        total = sum(amounts.values())
        return {word: amount / total for word, amount in sorted(amounts.items(), key=lambda pair: -pair[1])}

    def _query_terms(self, query: str) -> list[str]:
        """Return the terms of a query; of a short one without a term in any text, its characters, as words in a row."""
        query = fold_text(query)
        words = terms(query)
        return words if any(word in self.postings for word in words) else _short_characters(query)

    def _score_word(self, word: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the ascending indices (df,) of the texts with a word, and what it adds to their scores."""
        rows, frequencies = (np.frombuffer(column, np.int64) for column in self.postings.get(word, (b"", b"")))
        idf = math.log(1 + (len(self.normalizers) - len(rows) + 0.5) / (len(rows) + 0.5))
        return rows, idf * frequencies * (K1 + 1) / (frequencies + self.normalizers[rows])


def _short_characters(query: str) -> list[str]:
    """Return the characters of a query without spaces that has few terms, [] of others: an index of all is large."""
    return characters_within(query) if len(terms(query)) <= SHORT else []
