"""Measures of a ranking: nDCG, average precision and reciprocal rank.

Candidates with equal scores have no order. Every measure is therefore the mean over all orders of tied candidates
(McSherry and Najork 2008), independent of their order in a file: a model that gives all candidates the same score is as
good as a random order. Scores without ties, such as negative ranks, give the usual measures of one order.

The candidates are those that were ranked. If a search returned some documents of a larger collection, `judged` has the
relevance of all documents of the query, by which a measure is normalised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Ties:
    """The groups of equal scores, the highest score first: the first rank (from 0) and the size of each."""

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    sizes: NDArray[np.intp]

    @classmethod
    def of(cls, scores: Floats) -> Self:
        order = np.argsort(-scores, kind="stable")
        starts = np.flatnonzero(np.diff(scores[order], prepend=np.inf))
        return cls(order, starts, np.diff(starts, append=len(scores)))

    def sums(self, values: NDArray[np.generic]) -> Floats:
        """Return the sum of the values (n,) of each group."""
        return np.add.reduceat(values[self.order].astype(np.float64), self.starts)


def reciprocal_rank(scores: Floats, relevance: Floats, cutoff: float = math.inf) -> float:
    """Return 1 / the rank of the first relevant one of n candidates, 0 if it is beyond `cutoff` (Voorhees 1999).

    `scores`, `relevance` (n,); a relevance above 0 is relevant.

    >>> reciprocal_rank(np.array([3.0, 2.0, 1.0]), np.array([0.0, 1.0, 1.0]), 10)
    0.5
    >>> reciprocal_rank(np.array([1.0, 1.0]), np.array([1.0, 0.0]), 10)
    0.75
    """
    if not (relevance > 0).any():
        return 0.0
    ties = _Ties.of(scores)
    counts = ties.sums(relevance > 0)
    first = int(np.flatnonzero(counts)[0])
    before, n, relevant_count = int(ties.starts[first]), int(ties.sizes[first]), int(counts[first])
    total, chance = 0.0, relevant_count / n  # the probability that a relevant one is the first of the tie
    for offset in range(min(n - relevant_count + 1, int(min(cutoff, len(scores))) - before)):
        total += chance / (before + offset + 1)
        # The next position is the first relevant one if this one was not: sampling without replacement.
        chance *= (n - relevant_count - offset) / max(n - offset - 1, 1)
    return total


def ndcg(scores: Floats, relevance: Floats, cutoff: int, judged: Floats | None = None) -> float:
    """Return the normalised discounted cumulated gain of the first `cutoff` of n candidates, 0 if none is relevant.

    The gain is the relevance itself, divided by log2(1 + rank); the sum is divided by that of the best order (Järvelin
    and Kekäläinen 2002, section 2.2) of the candidates, or of `judged`.

    >>> round(ndcg(np.array([0.1, 0.9]), np.array([1.0, 0.0]), 10), 4)  # 1 / log2(3)
    0.6309
    >>> round(ndcg(np.array([0.9]), np.array([1.0]), 10, np.array([1.0, 1.0])), 4)  # 1 / (1 + 1 / log2(3))
    0.6131
    """
    ideal = np.sort(relevance if judged is None else judged)[::-1][:cutoff]
    best = float(ideal @ _discounts(len(ideal)))
    if not best > 0 or not len(scores):
        return 0.0
    ties = _Ties.of(scores)
    # Each position of a tie has the mean relevance of the tie as its expected gain.
    gains = np.repeat(ties.sums(relevance) / ties.sizes, ties.sizes)[:cutoff]
    return float(gains @ _discounts(len(gains))) / best


def _discounts(count: int) -> Floats:
    return 1 / np.log2(np.arange(2, count + 2))


def average_precision(scores: Floats, relevance: Floats, judged: Floats | None = None) -> float:
    """Return the average precision of n ranked candidates: the mean precision at the rank of each relevant one.

    A relevant document of `judged` that is not among the candidates has the precision 0.

    >>> round(average_precision(np.array([3.0, 2.0, 1.0]), np.array([1.0, 0.0, 1.0])), 4)  # (1 + 2 / 3) / 2
    0.8333
    """
    relevant_count = int(((relevance if judged is None else judged) > 0).sum())
    if not relevant_count or not len(scores):
        return 0.0
    ties = _Ties.of(scores)
    counts = ties.sums(relevance > 0)
    # A position of a tie holds a relevant one with probability count / size; the others are then spread evenly.
    ranks = np.arange(len(scores))
    offsets = ranks - np.repeat(ties.starts, ties.sizes)
    above = np.repeat(np.cumsum(counts) - counts, ties.sizes)
    others = np.repeat((counts - 1) / np.maximum(ties.sizes - 1, 1), ties.sizes)
    precisions = (above + 1 + offsets * others) / (ranks + 1)
    return float(np.repeat(counts / ties.sizes, ties.sizes) @ precisions) / relevant_count
