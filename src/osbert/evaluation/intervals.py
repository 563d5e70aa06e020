"""Confidence intervals of the scores on one set of rows, by the bootstrap (Efron 1979)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osbert.evaluation.bootstrap import LEAST, RESAMPLES, bootstrap, percentiles, wilson_interval
from osbert.tasks import Prediction, Record, Task
from osbert.terminal import format_count

WORK = 400_000
"""Most rows that are scored for an interval: up to 400 rows have RESAMPLES samples, and no sample has over WORK / LEAST
rows. An interval by 200 samples of 150 rows is up to 20% too wide or too narrow."""
FEW = 100
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
        return self.rows < FEW

    def describe(self) -> str:
        """Describe the interval in one line."""
        text = (
            f"{self.metric} {self.score:.4f}, 95% interval {self.low:.4f} to {self.high:.4f} ({self.method} over "
            f"{format_count(self.rows, 'row')})"
        )
        return f"{text}: under {FEW} rows, a rough figure" if self.few else text


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
    if not task.by_rows:
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
