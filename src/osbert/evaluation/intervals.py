"""Confidence intervals of a score on one set of rows, by the bootstrap (Efron 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osbert.evaluation.bootstrap import LEAST, bootstrap, percentiles
from osbert.tasks import Prediction, Record, Task

WORK = 100_000
"""Most rows that are scored for an interval: of more than WORK / LEAST rows each draw has only so many."""
FEW = 100
"""The number of rows below which a score is reported with a warning."""


@dataclass(frozen=True, kw_only=True)
class ScoreInterval:
    """The score of a model on some rows by one metric, and its 95% interval over draws of such rows."""

    metric: str
    score: float
    low: float
    high: float
    rows: int

    @property
    def few(self) -> bool:
        """Return whether the rows are too few for a score to say much."""
        return self.rows < FEW

    def describe(self) -> str:
        """Return it in words, for one line."""
        said = (
            f"{self.metric} {self.score:.4f}, 95% interval {self.low:.4f} to {self.high:.4f} (bootstrap over "
            f"{self.rows:,} rows)"
        )
        return f"{said}: under {FEW} rows, a rough figure" if self.few else said


def score_interval(task: Task, predictions: Sequence[Prediction], records: Sequence[Record]) -> ScoreInterval | None:
    """Return the interval of the task's criterion: what other rows of the same kind might have given.

    The rows are drawn anew with replacement; the bounds are percentiles of the scores. Where only m of n rows are
    drawn at a time, their distances from the score on all rows are multiplied by the root of m / n (the m out of n
    bootstrap, Bickel et al. 1997). Draws without a score (not a number) are left out; None where there is none, and
    where the rows do not stand for themselves (`Task.by_rows`).
    """
    if not task.by_rows:
        return None
    count, drawn = len(records), min(len(records), WORK // LEAST)
    score = task.metrics(predictions, records)[task.criterion]

    def criterion(rows: NDArray[np.intp]) -> list[float]:
        places = rows.tolist()
        found = task.metrics([predictions[place] for place in places], [records[place] for place in places])
        return [found[task.criterion]]

    narrowed = (drawn / count) ** 0.5
    bounds = percentiles(bootstrap(criterion, count, count=LEAST, drawn=drawn)[:, 0])
    low, high = (score + narrowed * (bound - score) for bound in bounds)
    if np.isnan(low):
        return None
    return ScoreInterval(metric=task.criterion, score=score, low=low, high=high, rows=count)
