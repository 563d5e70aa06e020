"""The prediction for a row with any number of labels: the predicted ones, and the probability of each label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from osbert.tasks.kinds.multilabel.cells import canonical
from osbert.tasks.outcome import UNPAIRED, RecordOutcome
from osbert.tasks.probabilities import likely_labels
from osbert.tasks.record import Prediction, Record


@dataclass(frozen=True, kw_only=True)
class LabelsPrediction(Prediction):
    """`value`: the labels whose probabilities reach their thresholds, sorted by name; () for none."""

    @property
    def answer(self) -> str:
        """Return the labels as text."""
        return ", ".join(map(repr, self.value)) or "without a label"

    def apply_thresholds(self, thresholds: Sequence[float]) -> Self:
        """Return the prediction at other thresholds, given in the order of its probabilities."""
        pairs = zip(self.probabilities.items(), thresholds, strict=True)
        return replace(
            self, value=canonical(name for (name, probability), threshold in pairs if probability >= threshold)
        )

    def above(self, threshold: float) -> tuple[Prediction, int]:
        """Return the prediction without labels less probable than a threshold, and how many those are."""
        labels = tuple(name for name in self.value if self.probabilities[name] >= threshold)
        return replace(self, value=labels), len(self.value) - len(labels)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, with a list of labels."""
        return super().as_dict() | {"prediction": list(self.value)}

    def lines(self) -> list[str]:
        """Return the labels in a line, then each probability, with a * for predicted labels."""
        ranked = likely_labels(self.probabilities, keep=self.value)
        rows = [f"{'*' if name in self.value else ' '} {probability:7.2%}  {name}" for name, probability in ranked]
        if more := len(self.probabilities) - len(ranked):
            rows.append(f"  {more:,} more labels, each less likely")
        return [", ".join(self.value) or "(no label)", *rows]


def labels_outcome(prediction: Prediction, record: Record, error: float) -> RecordOutcome:
    """Return the outcome of a record: right if exactly its labels are predicted.

    Its confidence is the probability of the least certain decision on a label.
    """
    given, true = {*prediction.value}, {*record.label}
    beliefs = tuple((probability, name in true) for name, probability in prediction.probabilities.items())
    sure = [probability if name in given else 1 - probability for name, probability in prediction.probabilities.items()]
    return RecordOutcome(
        truth=", ".join(record.label) or "(no label)",
        guess=", ".join(prediction.value) or "(no label)",
        score=float(given == true),
        right=given == true,
        error=error,
        confidence=min(sure, default=None),
        pairs=tuple(
            (name if name in true else UNPAIRED, name if name in given else UNPAIRED) for name in sorted(given | true)
        ),
        beliefs=beliefs,
    )
