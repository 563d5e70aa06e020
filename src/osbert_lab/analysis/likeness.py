"""Similarity of states of the same tokens: linear CKA of many layers at once, with jackknife intervals.

Linear CKA (Kornblith et al. 2019) with the unbiased estimator of HSIC (Song et al. 2007, equation 5). For independent
states it is about 0 even for few tokens, unlike the usual estimator. Intervals are jackknives over GROUPS groups of
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from osbert_lab.analysis.figures import DEVIATIONS, Floats

GROUPS = 10
LEAST = 20
"""Fewest tokens for a figure."""


def cka(states: Floats, other_states: Floats) -> float:
    """Return the unbiased linear CKA of states (n, D) and (n, D'): 1 if they differ by a rotation and a scale.

    It is about 0 for independent states, and may be slightly negative. NaN if one of them does not vary. n is at least
    5.

    >>> states = np.random.default_rng(0).normal(size=(30, 4))
    >>> round(cka(states, 2 * states[:, ::-1]), 6)
    1.0
    """
    return float(likeness([states, other_states])[0, 0, 1])


def likeness(states: Sequence[Floats]) -> Floats:
    """Return the unbiased linear CKA (1 + GROUPS, S, S) of each pair of S states (n, D); D may differ.

    The first is that of all n tokens, the others leave out one group each. The Gram matrices are computed in blocks of
    two groups, once for all of these, so that no whole n x n matrix is in memory.
    """
    n = len(states[0])
    groups = [np.arange(n)[group::GROUPS] for group in range(GROUPS)]
    given = [rows - rows.mean(axis=0) for rows in states]  # CKA is the same; the products are smaller
    inner = np.zeros((GROUPS, GROUPS, len(given), len(given)))
    sums = np.zeros((len(given), n, GROUPS))  # of each token's products with a group
    for first_group in range(GROUPS):
        # The Gram matrix is symmetric: blocks (one, two) with two <= one suffice.
        for second_group in range(first_group + 1):
            block = np.array([rows[groups[first_group]] @ rows[groups[second_group]].T for rows in given])
            if first_group == second_group:
                # The unbiased estimator uses Gram matrices with a zero diagonal.
                block[:, range(block.shape[1]), range(block.shape[1])] = 0
            sums[:, groups[first_group], second_group] = block.sum(axis=2)
            sums[:, groups[second_group], first_group] = block.sum(axis=1)
            # (S, S) sums of the elementwise products of the blocks: the parts of tr(K L).
            flat = block.reshape(len(given), -1)
            inner[first_group, second_group] = inner[second_group, first_group] = flat @ flat.T
    return np.array([_cka(_hsic(inner, sums, groups, left)) for left in (None, *range(GROUPS))])


def _hsic(inner: Floats, sums: Floats, groups: Sequence[np.ndarray], left: int | None) -> Floats:
    """Return the unbiased HSIC (S, S) of each pair of states, without the tokens of the group `left`."""
    held = [group for group in range(GROUPS) if group != left]
    index = np.concatenate([groups[group] for group in held])
    n = len(index)
    rows = sums[:, index][:, :, held].sum(axis=2)  # (S, n)
    totals = rows.sum(axis=1)
    # The three terms of equation 5: tr(K L), (1K1)(1L1) / ((n - 1)(n - 2)) and 2 / (n - 2) 1KL1.
    products = np.multiply.outer(totals, totals) / ((n - 1) * (n - 2))
    numerator: Floats = inner[np.ix_(held, held)].sum(axis=(0, 1)) + products - 2 * rows @ rows.T / (n - 2)
    return numerator / (n * (n - 3))


def _cka(hsic: Floats) -> Floats:
    # The unbiased HSIC of constant states is 0 or below: CKA is then NaN.
    self_similarity = np.where(hsic.diagonal() > 0, hsic.diagonal(), np.nan)
    return hsic / np.sqrt(np.multiply.outer(self_similarity, self_similarity))


def mean_cosine(states: Floats) -> float:
    """Return the mean cosine of two different states out of (n, D)."""
    unit = normalise(states)
    n = len(unit)
    # |sum u|^2 is the sum over all pairs; the n pairs of a state with itself are subtracted.
    return float((np.square(unit.sum(0)).sum() - np.square(unit).sum()) / (n * (n - 1)))


def normalise(states: Floats) -> Floats:
    """Return states (n, D) divided by their l2 norms."""
    return states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-12)


def standardise(states: Floats) -> Floats:
    """Return states (..., n, D) with each feature divided by its deviation over the tokens, if not 0."""
    deviations = states.std(axis=-2, keepdims=True)
    return states / np.where(deviations > 0, deviations, 1)


def interval_without(whole: float, left: Floats) -> tuple[float, float] | None:
    """Return the 95% jackknife interval from the values without each group (GROUPS,); None if not finite."""
    if not np.isfinite(left).all():
        return None
    # The standard error of the delete-a-group jackknife.
    error = float(np.sqrt((GROUPS - 1) / GROUPS * np.square(left - left.mean()).sum()))
    return whole - DEVIATIONS * error, whole + DEVIATIONS * error


def jackknife(figure: Callable[[np.ndarray], float], n: int) -> tuple[float, tuple[float, float] | None]:
    """Return a figure of n items and its 95% interval by the jackknife over GROUPS groups.

    `figure`: a function of the indices of some items.
    """
    whole = figure(np.arange(n))
    groups = np.arange(n) % GROUPS
    left = np.array([figure(np.flatnonzero(groups != group)) for group in range(GROUPS)])
    return whole, interval_without(whole, left)
