"""The bootstrap: how far a score would move on other rows of the same kind (Efron and Tibshirani 1993, chapter 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.evaluation.compare import CONFIDENCE

RESAMPLES = 1000
"""Samples that are drawn."""
LEAST, READ = 200, 500_000
"""Fewest samples, and about the most rows in all of them, for a statistic that is computed anew for each."""
BLOCK = 2**20
"""Most row numbers that are drawn at a time."""

Statistic = Callable[[NDArray[np.intp]], Sequence[float]]
"""Some figures of a sample, which is given by the numbers of its rows (n,)."""


def samples(rows: int, *, count: int = RESAMPLES, seed: int = 0) -> Iterator[NDArray[np.intp]]:
    """Yield blocks (b, rows) of `count` samples of row numbers, drawn with replacement."""
    rng = np.random.Generator(np.random.PCG64(seed))
    size = max(1, BLOCK // rows)
    for first in range(0, count, size):
        yield rng.integers(rows, size=(min(size, count - first), rows))


def bootstrap(statistic: Statistic, rows: int, *, seed: int = 0) -> NDArray[np.float64]:
    """Return the figures (R, K) of a statistic on samples of `rows` rows; R is smaller where the rows are many."""
    count = max(LEAST, min(RESAMPLES, READ // rows))
    drawn = (sample for block in samples(rows, count=count, seed=seed) for sample in block)
    return np.array([statistic(sample) for sample in drawn], np.float64)


def bootstrap_means(values: NDArray[np.float64], *, seed: int = 0) -> NDArray[np.float64]:
    """Return the means (R, ...) of values (n, ...) over samples of their rows."""
    return np.concatenate([values[block].mean(axis=1) for block in samples(len(values), seed=seed)])


def percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile interval of a figure's values on samples (R,).

    >>> percentiles(np.arange(1001.0))
    (25.0, 975.0)
    """
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of the mean of rows' scores (n,), of which NaN do not count; NaN for fewer than two.

    >>> bootstrap_interval([0.0, 1.0] * 50)
    (0.4, 0.6)
    """
    numbers = np.array(values, np.float64)
    numbers = numbers[~np.isnan(numbers)]
    return percentiles(bootstrap_means(numbers, seed=seed)) if len(numbers) > 1 else (np.nan, np.nan)
