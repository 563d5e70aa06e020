"""How alike states of the same tokens are: linear CKA of many layers at once, and jackknife intervals.

Linear CKA (Kornblith et al. 2019) with the unbiased estimator of HSIC (Song et al. 2007, equation 5), which is about 0
for independent states however few tokens there are; the usual one is not. Intervals are jackknives over GROUPS groups
of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from osbert.analysis.figures import DEVIATIONS, Floats

GROUPS = 10
LEAST = 20
"""Fewer tokens give no figure."""


def cka(one: Floats, two: Floats) -> float:
    """Return the unbiased linear CKA of states (n, D) and (n, D'): 1 for states that differ by a rotation and a scale.

    About 0 for independent ones, and below 0 by chance. NaN where one of them does not vary. n is 5 at least.

    >>> states = np.random.default_rng(0).normal(size=(30, 4))
    >>> round(cka(states, 2 * states[:, ::-1]), 6)
    1.0
    """
    return float(likeness([one, two])[0, 0, 1])


def likeness(states: Sequence[Floats]) -> Floats:
    """Return the unbiased linear CKA (1 + GROUPS, S, S) of each two of S states (n, D), D of each its own.

    First that of all n tokens, then those without each group of them. The products of tokens are summed by blocks of
    two groups, once for all of these, so that no whole Gram matrix is held.
    """
    n = len(states[0])
    groups = [np.arange(n)[group::GROUPS] for group in range(GROUPS)]
    given = [rows - rows.mean(axis=0) for rows in states]  # CKA is the same; the products are smaller
    inner = np.zeros((GROUPS, GROUPS, len(given), len(given)))
    sums = np.zeros((len(given), n, GROUPS))  # of each token's products with a group
    for one in range(GROUPS):
        for two in range(one + 1):
            block = np.array([rows[groups[one]] @ rows[groups[two]].T for rows in given])
            if one == two:
                block[:, range(block.shape[1]), range(block.shape[1])] = 0
            sums[:, groups[one], two] = block.sum(axis=2)
            sums[:, groups[two], one] = block.sum(axis=1)
            flat = block.reshape(len(given), -1)
            inner[one, two] = inner[two, one] = flat @ flat.T
    return np.array([_cka(_hsic(inner, sums, groups, left)) for left in (None, *range(GROUPS))])


def _hsic(inner: Floats, sums: Floats, groups: Sequence[np.ndarray], left: int | None) -> Floats:
    """Return the unbiased HSIC (S, S) of each two states, without the tokens of the group `left`."""
    held = [group for group in range(GROUPS) if group != left]
    index = np.concatenate([groups[group] for group in held])
    n = len(index)
    rows = sums[:, index][:, :, held].sum(axis=2)  # (S, n)
    totals = rows.sum(axis=1)
    products = np.multiply.outer(totals, totals) / ((n - 1) * (n - 2))
    found: Floats = inner[np.ix_(held, held)].sum(axis=(0, 1)) + products - 2 * rows @ rows.T / (n - 2)
    return found / (n * (n - 3))


def _cka(hsic: Floats) -> Floats:
    own = np.where(hsic.diagonal() > 0, hsic.diagonal(), np.nan)
    return hsic / np.sqrt(np.multiply.outer(own, own))


def mean_cosine(states: Floats) -> float:
    """Return the mean cosine of two different states out of (n, D)."""
    unit = normed(states)
    n = len(unit)
    return float((np.square(unit.sum(0)).sum() - np.square(unit).sum()) / (n * (n - 1)))


def normed(states: Floats) -> Floats:
    """Return states (n, D) divided by their lengths."""
    return states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-12)


def standardised(states: Floats) -> Floats:
    """Return states (..., n, D), each number divided by its deviation over the tokens, if it has one."""
    deviations = states.std(axis=-2, keepdims=True)
    return states / np.where(deviations > 0, deviations, 1)


def interval_without(whole: float, left: Floats) -> tuple[float, float] | None:
    """Return the 95% interval of a figure by what it is without each group (GROUPS,), None where one is not finite."""
    if not np.isfinite(left).all():
        return None
    error = float(np.sqrt((GROUPS - 1) / GROUPS * np.square(left - left.mean()).sum()))
    return whole - DEVIATIONS * error, whole + DEVIATIONS * error


def jackknife(figure: Callable[[np.ndarray], float], n: int) -> tuple[float, tuple[float, float] | None]:
    """Return a figure of all of n items, and its 95% interval from leaving out each of GROUPS groups of them.

    `figure`: of the numbers of some items.
    """
    whole = figure(np.arange(n))
    groups = np.arange(n) % GROUPS
    left = np.array([figure(np.flatnonzero(groups != group)) for group in range(GROUPS)])
    return whole, interval_without(whole, left)
