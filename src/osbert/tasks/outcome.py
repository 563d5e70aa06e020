"""The outcome of a task on one record, for reports and comparisons of runs: as text, as a score and as marks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from osbert.tasks.record import Prediction, Record

UNPAIRED = ""
"""The label of the missing side of a pair."""

Side = Literal["truth", "prediction"]
SIDES: tuple[Side, Side] = ("truth", "prediction")
"""The sources of labels: the data and the model."""


@dataclass(frozen=True, kw_only=True)
class TextMark:
    """Characters [start, end) of text number `text` of a record, labelled `name` by `of`."""

    start: int
    end: int
    name: str = ""
    of: Side = "truth"
    text: int = 0


@dataclass(frozen=True, kw_only=True)
class RecordOutcome:
    """The outcome of a task on one record.

    `truth` and `guess`: its label and its prediction as text. `score`: higher is better; the mean over records is the
    metric `Task.row_score`; NaN if the record does not count. `right`: whether all of it is right, None if that makes
    no sense. `error`: the size of the error, 0 if it is right, by which mistakes are ranked. `confidence`: the
    probability of the prediction, None without one.

    `pairs`: true and predicted label of each item, UNPAIRED if one is missing. `beliefs`: probabilities, each with
    whether its event occurred. `numbers`: label and prediction of a task of numbers.
    """

    truth: str
    guess: str
    score: float
    right: bool | None
    error: float
    confidence: float | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    beliefs: tuple[tuple[float, bool], ...] = ()
    numbers: tuple[float, float] | None = None
    marks: tuple[TextMark, ...] = ()


def prediction_error(prediction: Prediction, record: Record) -> float:
    """Return the size of a prediction's error, 0 if it is right.

    1 minus the label's probability, if there is one; the distance of two numbers; 1 for any other mistake.
    """
    if prediction.comparable == record.label:
        return 0.0
    if isinstance(prediction.value, float):
        return abs(prediction.value - record.label)
    return 1 - prediction.probabilities.get(record.label, 0.0) if prediction.probabilities else 1.0


def simple_outcome(prediction: Prediction, record: Record) -> RecordOutcome:
    """Return the outcome of a record whose label is one of several, or a number."""
    truth, guess, error = record.label, prediction.value, prediction_error(prediction, record)
    if isinstance(guess, float):
        numbers = (float(truth), guess)
        return RecordOutcome(
            truth=f"{truth:g}", guess=f"{guess:.4g}", score=-error, right=None, error=error, numbers=numbers
        )
    right = guess == truth
    confidence = prediction.probabilities.get(guess)
    return RecordOutcome(
        truth=str(truth),
        guess=str(guess),
        score=float(right),
        right=right,
        error=error,
        confidence=confidence,
        pairs=((str(truth), str(guess)),),
        beliefs=() if confidence is None else ((confidence, right),),
    )


def mean_score(outcomes: Iterable[RecordOutcome]) -> float:
    """Return the mean of the scores that are not NaN; NaN if there are none."""
    scores = [outcome.score for outcome in outcomes if not math.isnan(outcome.score)]
    return sum(scores) / len(scores) if scores else math.nan
