"""The bootstrap, intervals of the scores on one set of rows, and tests of two models on the same rows.

The bootstrap gives the variation of a score over other rows of the same kind (Efron and Tibshirani 1993, chapter 13).
Of two models there are McNemar's test of accuracy, the paired bootstrap for any score, and Holm's correction. A paired
test uses only the differences; rows that are easy or hard for both models add no variance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osbert.tasks import Prediction, Record, Task
from osbert.terminal import format_count

CONFIDENCE = 0.95
"""Confidence level of all intervals."""
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


@dataclass(frozen=True, kw_only=True)
class McNemar:
    """McNemar's exact test (1947): the rows that only one of two models has right, and the two-sided `p_value`."""

    only_first: int
    only_second: int
    p_value: float


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """The first model's score minus the second's, its 95% interval and two-sided `p_value`, by the paired bootstrap."""

    difference: float
    interval: tuple[float, float]
    p_value: float


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """Test whether two models are right equally often; `first` and `second` (n,): whether each is right.

    The exact form of McNemar's test (1947): if the models are equally good, the rows that only one of them has right
    are split binomially with probability 1/2.

    >>> mcnemar([True] * 6 + [False], [False] * 5 + [True] * 2)
    McNemar(only_first=5, only_second=1, p_value=0.21875)
    """
    from scipy.stats import binom

    pairs = list(zip(first, second, strict=True))
    only_first, only_second = (
        sum(first_right and not second_right for first_right, second_right in pairs),
        sum(second_right and not first_right for first_right, second_right in pairs),
    )
    p_value = min(1.0, 2 * float(binom.cdf(min(only_first, only_second), only_first + only_second, 0.5)))
    return McNemar(only_first=only_first, only_second=only_second, p_value=p_value)


def score_difference(
    scores: tuple[float, float], first: NDArray[np.float64], second: NDArray[np.float64]
) -> ScoreDifference:
    """Return the difference of two models' scores, from their scores on the same R samples of rows, (R,) each.

    The p-value is twice the smaller fraction of samples on one side of 0; ties count on both (Koehn 2004). Samples with
    a NaN score are ignored; if there are no others, the p-value is 1.
    """
    differences = (first - second)[~np.isnan(first - second)]
    rare = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return ScoreDifference(
        difference=scores[0] - scores[1],
        interval=percentiles(differences),
        # +1: the observed data count as one more sample, so that the p-value is never 0.
        p_value=min(1.0, 2 * (rare + 1) / (len(differences) + 1)),
    )


def randomization_test(differences: NDArray[np.float64], *, samples: int = 10_000, seed: int = 0) -> float:
    """Return the two-sided p-value of the mean of paired differences (n,), by Fisher's randomization test.

    If the systems are equally good, each difference could as well have the other sign. All 2^n signs are tried where
    that is at most `samples`, else so many at random, and what was observed counts as one of them. Two queries can
    therefore not reach less than 0.5 (Smucker et al. 2007, section 2).

    >>> randomization_test(np.array([0.4, 0.2])), randomization_test(np.array([0.1, -0.1, 0.0]))
    (0.5, 1.0)
    """
    changed = differences[differences != 0]
    if not len(changed):
        return 1.0
    if 2 ** len(changed) <= samples:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(changed))))
    else:
        generator = np.random.default_rng(seed)
        signs = generator.choice((1.0, -1.0), size=(samples, len(changed)))
        signs[0] = 1.0
    # Sums that differ by rounding alone are ties.
    return float((np.abs(signs @ changed) >= abs(changed.sum()) * (1 - 1e-9)).mean())


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests by Holm (1979), which controls the probability of any false positive.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        # The maximum keeps corrected p-values in the order of the original ones.
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


WORK = 400_000
"""Most rows that are scored for an interval: up to 400 rows have RESAMPLES samples, and no sample has over WORK / LEAST
rows. An interval by 200 samples of 150 rows is up to 20% too wide or too narrow."""
ROUGH_BELOW = 100
"""The number of rows below which a score is reported with a warning."""


@dataclass(frozen=True, kw_only=True)
class ScoreInterval:
    """The score of a model on some rows by one metric, and its 95% interval over samples of rows.

    `method`: the bootstrap; or Wilson's interval if all rows are right or all are wrong, because samples of them are
    all alike and the interval would have no width.
    """

    metric: str
    score: float
    low: float
    high: float
    rows: int
    method: Literal["bootstrap", "Wilson"] = "bootstrap"

    @property
    def few(self) -> bool:
        """Return whether the rows are too few for a reliable score."""
        return self.rows < ROUGH_BELOW

    def describe(self) -> str:
        """Describe the interval in one line."""
        text = (
            f"{self.metric} {self.score:.4f}, 95% interval {self.low:.4f} to {self.high:.4f} ({self.method} over "
            f"{format_count(self.rows, 'row')})"
        )
        return f"{text}: under {ROUGH_BELOW} rows, a rough figure" if self.few else text


def score_intervals(
    task: Task, predictions: Sequence[Prediction], records: Sequence[Record]
) -> dict[str, ScoreInterval]:
    """Return the intervals of a task's metrics by name, without those of single classes.

    The rows are resampled with replacement; the bounds are percentiles of the scores. If a sample has only
    m of n rows, the distances of the bounds from the score are multiplied by sqrt(m / n) (the m out of n bootstrap,
    Bickel et al. 1997). Samples on which a metric is undefined are left out. There are no intervals if rows cannot be
    scored independently (`Task.by_rows`). A score that is equal on all samples has no interval, except for the rate of
    correct rows (`Task.row_score`), which has Wilson's.
    """
    if not task.by_rows or not records:
        return {}
    count, drawn = len(records), min(len(records), WORK // LEAST)
    resamples = min(RESAMPLES, WORK // max(1, drawn))
    scores = {name: score for name, score in task.metrics(predictions, records).items() if "/" not in name}

    def figures(rows: NDArray[np.intp]) -> list[float]:
        indices = rows.tolist()
        try:
            sample_scores = task.metrics(
                [predictions[index] for index in indices], [records[index] for index in indices]
            )
        except (ArithmeticError, ValueError):  # a task of the user's own, on a draw of one class
            sample_scores = {}
        return [sample_scores.get(name, math.nan) for name in scores]

    columns = bootstrap(figures, count, count=resamples, drawn=drawn).T
    narrowed = math.sqrt(drawn / count)
    intervals = {}
    for (name, score), column in zip(scores.items(), columns, strict=True):
        low, high = (score + narrowed * (bound - score) for bound in percentiles(column))
        if low < high:  # NaN is not
            intervals[name] = ScoreInterval(metric=name, score=score, low=low, high=high, rows=count)
        elif interval := uniform_interval(task, name, score, count):
            intervals[name] = interval
    return intervals


def uniform_interval(task: Task, metric: str, score: float, rows: int) -> ScoreInterval | None:
    """Return Wilson's interval of a rate of correct rows if all or none are correct; None for any other score."""
    if metric != task.row_score or score not in (0, 1):
        return None
    low, high = wilson_interval(round(score * rows), rows)
    return ScoreInterval(metric=metric, score=score, low=low, high=high, rows=rows, method="Wilson")
