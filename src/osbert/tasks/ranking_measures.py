"""Measures of a ranking: nDCG, average precision and reciprocal rank.

Candidates with equal scores have no order. Every measure is therefore the mean over all orders of tied candidates
(McSherry and Najork 2008), independent of their order in a file: a model that gives all candidates the same score is as
good as a random order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def reciprocal_rank(scores: Floats, relevance: Floats, cutoff: int) -> float:
    """Return 1 / the rank of the first relevant one of n candidates, 0 if it is beyond `cutoff` (Voorhees 1999).

    `scores`, `relevance` (n,); a relevance above 0 is relevant.

    >>> reciprocal_rank(np.array([3.0, 2.0, 1.0]), np.array([0.0, 1.0, 1.0]), 10)
    0.5
    >>> reciprocal_rank(np.array([1.0, 1.0]), np.array([1.0, 0.0]), 10)
    0.75
    """
    for before, tied in _ties(scores):
        n, relevant_count = len(tied), int((relevance[tied] > 0).sum())
        if not relevant_count:
            continue
        total, chance = (
            0.0,
            relevant_count / n,
        )  # probability that the first relevant one is at the first position of the tie
        for offset in range(min(n - relevant_count + 1, cutoff - before)):
            total += chance / (before + offset + 1)
            # The next position is the first relevant one if this one was not: sampling without replacement.
            chance *= (n - relevant_count - offset) / max(n - offset - 1, 1)
        return total
    return 0.0


def ndcg(scores: Floats, relevance: Floats, cutoff: int) -> float:
    """Return the normalised discounted cumulated gain of the first `cutoff` of n candidates, 0 if none is relevant.

    The gain is the relevance itself, divided by log2(1 + rank); the sum is divided by that of the best order (Järvelin
    and Kekäläinen 2002, section 2.2).

    >>> round(ndcg(np.array([0.1, 0.9]), np.array([1.0, 0.0]), 10), 4)  # 1 / log2(3)
    0.6309
    """
    discounts = 1 / np.log2(np.arange(2, len(scores) + 2))
    discounts[cutoff:] = 0
    best = float(np.sort(relevance)[::-1] @ discounts)
    if not best > 0:
        return 0.0
    # Each position of a tie has the mean relevance of the tie as its expected gain.
    gained = sum(
        relevance[tied].mean() * discounts[before : before + len(tied)].sum() for before, tied in _ties(scores)
    )
    return float(gained) / best


def average_precision(scores: Floats, relevance: Floats) -> float:
    """Return the average precision of n ranked candidates: the mean precision at the rank of each relevant one.

    >>> round(average_precision(np.array([3.0, 2.0, 1.0]), np.array([1.0, 0.0, 1.0])), 4)  # (1 + 2 / 3) / 2
    0.8333
    """
    total = above = 0.0
    for before, tied in _ties(scores):
        n, relevant_count = len(tied), int((relevance[tied] > 0).sum())
        offsets = np.arange(n)
        # Each place of a tie holds a relevant one with probability found / n; the others are then spread evenly.
        within = offsets * (relevant_count - 1) / (n - 1) if n > 1 else np.zeros(1)
        total += float((relevant_count / n * (above + 1 + within) / (before + 1 + offsets)).sum())
        above += relevant_count
    return total / above if above else 0.0


def _ties(scores: Floats) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield (number of candidates before, indices) for each group of equal scores, the highest score first."""
    order = np.argsort(-scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=np.inf))
    yield from zip(starts.tolist(), np.split(order, starts[1:]))
