"""The bootstrap: the variation of a score over other rows of the same kind (Efron and Tibshirani 1993, chapter 13)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from osbert.evaluation.compare import CONFIDENCE

RESAMPLES, LEAST = 1000, 200
"""Number of bootstrap samples; the smaller one is for figures that are expensive to compute."""
BLOCK = 2**20
"""Most row indices that are sampled at a time."""

Statistic = Callable[[NDArray[np.intp]], Sequence[float]]
"""A function from the row indices of a sample (n,) to its figures (K,)."""


def samples(rows: int, *, count: int = RESAMPLES, drawn: int = 0, seed: int = 0) -> Iterator[NDArray[np.intp]]:
    """Yield blocks (b, m) of `count` samples of row indices with replacement; m is `drawn`, by default all rows."""
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = drawn or rows
    # Blocks bound the memory of the indices.
    size = max(1, BLOCK // drawn)
    for first in range(0, count, size):
        yield rng.integers(rows, size=(min(size, count - first), drawn))


def bootstrap(
    statistic: Statistic, rows: int, *, count: int = RESAMPLES, drawn: int = 0, seed: int = 0
) -> NDArray[np.float64]:
    """Return the figures (R, K) of a statistic on R = `count` samples of `drawn` rows, by default of all `rows`."""
    blocks = samples(rows, count=count, drawn=drawn, seed=seed)
    return np.array([statistic(sample) for block in blocks for sample in block], np.float64)


def bootstrap_means(values: NDArray[np.float64], *, seed: int = 0) -> NDArray[np.float64]:
    """Return the means (R, ...) of values (n, ...) over samples of their rows."""
    # values[block] has the shape (b, m, ...).
    return np.concatenate([values[block].mean(axis=1) for block in samples(len(values), seed=seed)])


def percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile interval of a figure's values on samples (R,), without NaN; NaN if there are none.

    >>> [round(one) for one in percentiles(np.arange(1001.0))]
    [25, 975]
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of the mean of rows' scores (n,), without NaN; NaN for fewer than two rows.

    >>> bootstrap_interval([0.0, 1.0] * 50)
    (0.4, 0.6)
    """
    numbers = np.array(values, np.float64)
    numbers = numbers[~np.isnan(numbers)]
    return percentiles(bootstrap_means(numbers, seed=seed)) if len(numbers) > 1 else (math.nan, math.nan)


def ratio_interval(
    totals: NDArray[np.float64], counts: NDArray[np.floating] | NDArray[np.integer], *, seed: int = 0
) -> tuple[float, float]:
    """Return the 95% interval of sum(totals) / sum(counts), two columns (n,) whose rows are sampled together.

    For a mean over parts of unequal size that are not independent, such as the words of texts: a row is a text.

    >>> ratio_interval(np.array([2.0, 4.0]), np.array([1, 2]))
    (2.0, 2.0)
    """
    ratios = bootstrap(lambda rows: [totals[rows].sum() / counts[rows].sum()], len(totals), seed=seed)
    return percentiles(ratios[:, 0])


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """Return the 95% interval of a rate from `hits` out of `count` (Wilson 1927); NaN for a count of 0.

    Unlike a bootstrap interval it has a width above 0 even if all or none are hits.

    >>> [round(one, 3) for one in wilson_interval(10, 10)]
    [0.722, 1.0]
    """
    if not count:
        return math.nan, math.nan
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    rate, weight = hits / count, z * z / count
    middle = (rate + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(rate * (1 - rate) / count + weight / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)
