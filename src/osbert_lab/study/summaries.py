"""Summarises many runs: median, mean, deviation and the interval of the mean, for every metric."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from osbert.evaluation.bootstrap import CONFIDENCE

RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("accuracy", "precision", "recall", "f1", "match", "illegal", "map", "mrr", "ndcg"), (0.0, 1.0)),
    **dict.fromkeys(("rouge1", "rouge2", "rougeL", "bleu"), (0.0, 1.0)),
    **dict.fromkeys(("matthews", "kappa", "pearson", "spearman"), (-1.0, 1.0)),
    **dict.fromkeys(("mse", "rmse", "mae", "distance"), (0.0, math.inf)),
}
"""The range of metrics by a word of their names, such as that of "macro_f1" and "ndcg@10"."""
FEWEST = 3
"""Fewest runs for which a confidence interval is reported. With two it is twelve times as wide as their difference."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Statistics of one metric over several runs.

    `deviation`: the standard deviation over runs (n - 1), NaN for a single one. `interval`: the
    95% confidence interval of the mean by Student's t, which assumes normally distributed runs, cut at the metric's
    range; NaN for fewer than 3.
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
        text = f"median {self.median:.4f}, mean {self.mean:.4f}, deviation {self.deviation:.4f}"
        text += f", range {self.lowest:.4f} to {self.highest:.4f}"
        if self.count < FEWEST:
            return f"{text} ({self.count} runs: too few for an interval)"
        low, high = self.interval
        return f"{text} (95% interval of the mean {low:.4f} to {high:.4f})"


def summarise(values: Sequence[float], limits: tuple[float, float] = (-math.inf, math.inf)) -> Summary:
    """Summarise a metric's values, one per run; `limits`: its range. Raises ValueError if there are none.

    >>> [round(bound, 2) for bound in summarise([1.0, 1.0, 0.9], (0.0, 1.0)).interval]
    [0.82, 1.0]
    """
    if not values:
        raise ValueError("no run, no summary")
    if not all(limits[0] <= value <= limits[1] for value in values):  # a metric of the user's own with a known name
        limits = (-math.inf, math.inf)
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    interval = (math.nan, math.nan)
    if len(values) >= FEWEST:
        from scipy.special import stdtrit  # which imports in a fraction of the time of scipy.stats

        half = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * deviation / math.sqrt(len(values))
        # In this order NaN stays NaN.
        interval = max(mean - half, limits[0]), min(mean + half, limits[1])
    return Summary(
        count=len(values),
        median=statistics.median(values),
        mean=mean,
        deviation=deviation,
        lowest=min(values),
        highest=max(values),
        interval=interval,
    )


def summaries(scores: Iterable[Mapping[str, float]]) -> dict[str, Summary]:
    """Summarise every metric that all runs have, in the order of the first run."""
    runs = list(scores)
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: summarise([run[name] for run in runs], metric_range(name)) for name in names}


def metric_range(name: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a metric by its name; infinite if unknown.

    >>> metric_range("macro_f1"), metric_range("f1/mse"), metric_range("mse"), metric_range("profit")
    ((0.0, 1.0), (0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    words = re.split(r"[_.@]", name.partition("/")[0])
    return next((RANGES[word] for word in words if word in RANGES), (-math.inf, math.inf))


def sortable(score: float) -> float:
    """Return the score for sorting by "higher is better"; NaN becomes minus infinity."""
    return -math.inf if math.isnan(score) else score
