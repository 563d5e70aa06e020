"""Scores of many answers: means over all, over those with and without an answer, and with the best thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.tasks import Prediction, Record
from osbert.tasks.kinds.span.questions import AnswerPrediction
from osbert.tasks.kinds.span.scoring import EXACT, F1, Way, best, best_threshold


class Scores:
    """Scores of predictions against their records' true answers; `way`: the unit of comparison."""

    def __init__(self, predictions: Sequence[Prediction], records: Sequence[Record], *, way: Way) -> None:
        """Store predictions and records, which have the same order."""
        self.predictions = predictions
        self.golds = [[gold.text for gold in record.label] for record in records]
        self.answerable = np.array([bool(golds) for golds in self.golds], np.bool_)
        self.measures = {"exact": EXACT[way], "f1": F1[way]}

    def means(self) -> dict[str, float]:
        """Return exact match and F1; if some questions have no answer, also for each kind of question."""
        answers = [prediction.value for prediction in self.predictions]
        scores = {name: self._each(name, answers) for name in self.measures}
        mean_by_name = {name: float(each.mean()) for name, each in scores.items()}
        for kind, chosen in (("has_answer", self.answerable), ("no_answer", ~self.answerable)):
            if chosen.any() and not self.answerable.all():
                mean_by_name |= {f"{kind}_{name}": float(each[chosen].mean()) for name, each in scores.items()}
        return mean_by_name

    def best(self) -> dict[str, float]:
        """Return the highest exact match and F1 over all thresholds, and these thresholds.

        As `best_exact` and `best_f1` of evaluate-v2.0.py, but exact also where margins are equal.
        """
        predictions = [
            prediction if isinstance(prediction, AnswerPrediction) and prediction.margin is not None else None
            for prediction in self.predictions
        ]
        open_to_doubt = np.array([prediction is not None for prediction in predictions], np.bool_)
        margins = np.array([prediction.margin for prediction in predictions if prediction is not None], np.float64)
        best_scores: dict[str, float] = {}
        for name in self.measures:
            silent = self._each(name, [""] * len(predictions))
            answered = self._each(name, ["" if prediction is None else prediction.text for prediction in predictions])
            total, value = silent.sum(), 0.0
            if len(margins):
                threshold = best_threshold(margins, answered[open_to_doubt], silent[open_to_doubt])
                total, value = silent[~open_to_doubt].sum() + threshold.score * len(margins), threshold.value
            best_scores |= {f"best_{name}": float(total / len(predictions)), f"best_{name}_threshold": value}
        return best_scores

    def means_at_zero(self) -> dict[str, float]:
        """Return exact match and F1 at a threshold of 0: the most probable text if it outscores no answer."""
        answers = [
            prediction.apply_threshold(0.0).value if isinstance(prediction, AnswerPrediction) else prediction.value
            for prediction in self.predictions
        ]
        return {f"untuned_{name}": float(self._each(name, answers).mean()) for name in self.measures}

    def _each(self, name: str, answers: Sequence[str]) -> NDArray[np.float64]:
        """Return each answer's score (n,)."""
        measure = self.measures[name]
        return np.array([best(measure, answer, golds) for answer, golds in zip(answers, self.golds)], np.float64)
