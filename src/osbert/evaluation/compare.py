"""Summarises many runs: median, mean, deviation and the interval of the mean, for every metric."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
"""Confidence level of the interval of a mean."""
FEWEST = 3
"""Fewest runs for which a confidence interval is reported. With two it is twelve times as wide as their difference."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Statistics of one metric over several runs.

    `deviation`: the standard deviation over runs (n - 1), NaN for a single one. `interval`: the
    95% confidence interval of the mean by Student's t, which assumes normally distributed runs; NaN for fewer than 3.
    """

    count: int
    median: float
    mean: float
    deviation: float
    lowest: float
    highest: float
    interval: tuple[float, float]

    @property
    def sign(self) -> int:
        """Return 1 or -1 if the whole interval is above or below 0; 0 if it includes 0 or there is none."""
        low, high = self.interval
        return int(low > 0) - int(high < 0)

    def describe(self) -> str:
        """Describe the summary in one line."""
        if self.count == 1:
            return f"{self.mean:.4f} (one run: no deviation)"
        told = f"median {self.median:.4f}, mean {self.mean:.4f}, deviation {self.deviation:.4f}"
        told += f", range {self.lowest:.4f} to {self.highest:.4f}"
        if self.count < FEWEST:
            return f"{told} ({self.count} runs: too few for an interval)"
        low, high = self.interval
        return f"{told} (95% interval of the mean {low:.4f} to {high:.4f})"


def summarise(values: Sequence[float]) -> Summary:
    """Summarise a metric's values, one per run. Raises ValueError if there are none."""
    if not values:
        raise ValueError("no run, no summary")
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return Summary(
        count=len(values),
        median=statistics.median(values),
        mean=mean,
        deviation=deviation,
        lowest=min(values),
        highest=max(values),
        interval=_interval(mean, deviation, len(values)),
    )


def summaries(scores: Iterable[Mapping[str, float]]) -> dict[str, Summary]:
    """Summarise every metric that all runs have, in the order of the first run."""
    runs = list(scores)
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: summarise([run[name] for run in runs]) for name in names}


def _interval(mean: float, deviation: float, count: int) -> tuple[float, float]:
    if count < FEWEST:
        return math.nan, math.nan
    from scipy.special import stdtrit  # which imports in a fraction of the time of scipy.stats

    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * deviation / math.sqrt(count)
    return mean - half, mean + half


def sortable(score: float) -> float:
    """Return the score for sorting by "higher is better"; NaN becomes minus infinity."""
    return -math.inf if math.isnan(score) else score
