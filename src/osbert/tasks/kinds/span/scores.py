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
        said = [prediction.value for prediction in self.predictions]
        scores = {name: self._each(name, said) for name in self.measures}
        found = {name: float(each.mean()) for name, each in scores.items()}
        for kind, chosen in (("has_answer", self.answerable), ("no_answer", ~self.answerable)):
            if chosen.any() and not self.answerable.all():
                found |= {f"{kind}_{name}": float(each[chosen].mean()) for name, each in scores.items()}
        return found

    def best(self) -> dict[str, float]:
        """Return the highest exact match and F1 over all thresholds, and these thresholds.

        As `best_exact` and `best_f1` of evaluate-v2.0.py, but exact also where margins are equal.
        """
        asked = [
            one if isinstance(one, AnswerPrediction) and one.margin is not None else None for one in self.predictions
        ]
        open_to_doubt = np.array([one is not None for one in asked], np.bool_)
        margins = np.array([one.margin for one in asked if one is not None], np.float64)
        found: dict[str, float] = {}
        for name in self.measures:
            silent = self._each(name, [""] * len(asked))
            answered = self._each(name, ["" if one is None else one.text for one in asked])
            total, value = silent.sum(), 0.0
            if len(margins):
                threshold = best_threshold(margins, answered[open_to_doubt], silent[open_to_doubt])
                total, value = silent[~open_to_doubt].sum() + threshold.score * len(margins), threshold.value
            found |= {f"best_{name}": float(total / len(asked)), f"best_{name}_threshold": value}
        return found

    def untuned(self) -> dict[str, float]:
        """Return exact match and F1 at a threshold of 0: the most probable text if it outscores no answer."""
        said = [one.decided(0.0).value if isinstance(one, AnswerPrediction) else one.value for one in self.predictions]
        return {f"untuned_{name}": float(self._each(name, said).mean()) for name in self.measures}

    def _each(self, name: str, said: Sequence[str]) -> NDArray[np.float64]:
        """Return each answer's score (n,)."""
        measure = self.measures[name]
        return np.array([best(measure, one, golds) for one, golds in zip(said, self.golds)], np.float64)
