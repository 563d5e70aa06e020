"""The prediction for a row with any number of labels, its thresholds and its scores.

n rows, K labels. Where a score would divide by 0: F1 is 1 where there is nothing to find and nothing is predicted, of a
row and over all (scikit-learn's zero_division=1); a label that neither the rows nor the predictions have is left out of
the macro F1 (zero_division=nan), and one that no row has out of the mean average precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from osbert.tasks.kinds.multilabel.columns import canonical
from osbert.tasks.probabilities import likely_labels
from osbert.tasks.record import Prediction


@dataclass(frozen=True, kw_only=True)
class LabelsPrediction(Prediction):
    """`value`: the labels whose probabilities reach their thresholds, sorted by name; () for none."""

    @property
    def answer(self) -> str:
        return ", ".join(map(repr, self.value)) or "without a label"

    def apply_thresholds(self, thresholds: Sequence[float]) -> Self:
        """Return the prediction at other thresholds, given in the order of its probabilities."""
        pairs = zip(self.probabilities.items(), thresholds, strict=True)
        return replace(
            self, value=canonical(name for (name, probability), threshold in pairs if probability >= threshold)
        )

    def above(self, threshold: float) -> tuple[Prediction, int]:
        labels = tuple(name for name in self.value if self.probabilities[name] >= threshold)
        return replace(self, value=labels), len(self.value) - len(labels)

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"prediction": list(self.value)}

    def lines(self) -> list[str]:
        ranked = likely_labels(self.probabilities, keep=self.value)
        rows = [f"{'*' if name in self.value else ' '} {probability:7.2%}  {name}" for name, probability in ranked]
        if more := len(self.probabilities) - len(ranked):
            rows.append(f"  {more:,} more labels, each less likely")
        return [", ".join(self.value) or "(no label)", *rows]


Flags = NDArray[np.bool_]
Probabilities = NDArray[np.float64]


def matrix(sets: Sequence[Sequence[str]], labels: Sequence[str]) -> Flags:
    """Return whether each row has each label, (n, K); labels that are not among `labels` are ignored."""
    column_by_label = {label: column for column, label in enumerate(labels)}
    table = np.zeros((len(sets), len(labels)), np.bool_)
    for row, names in enumerate(sets):
        table[row, [column_by_label[label] for label in names if label in column_by_label]] = True
    return table


def f1(predicted_flags: Flags, true: Flags, axis: int | None = None) -> NDArray[np.float64]:
    """Return 2 hits / (predicted + true), over all or along an axis; NaN if nothing is predicted or true."""
    hits = np.asarray((predicted_flags & true).sum(axis=axis), np.float64)
    counts = np.asarray(predicted_flags.sum(axis=axis) + true.sum(axis=axis), np.float64)
    return np.divide(2 * hits, counts, out=np.full_like(hits, np.nan), where=counts > 0)


def average_precision(true: Flags, probabilities: Probabilities) -> float:
    """Return the average precision of one label, (n,) each: the sum of precision times the gain in recall.

    Rows of equal probability count together. 0 if no row has the label.
    """
    if not true.any():
        return 0.0
    order = np.argsort(-probabilities, kind="stable")
    # The last row of each run of equal probabilities.
    ends = np.append(np.flatnonzero(np.diff(probabilities[order])), len(order) - 1)
    hits = np.cumsum(true[order])[ends]
    # The gain in recall of each run of equal probabilities; its precision is hits / (ends + 1).
    gains = np.diff(hits, prepend=0) / hits[-1]
    return float((gains * hits / (ends + 1)).sum())


def label_scores(
    predicted_flags: Flags, true: Flags, probabilities: Probabilities, labels: Sequence[str]
) -> dict[str, float]:
    """Return micro, macro and sample F1, subset accuracy, mean average precision, and the F1 of each label."""
    single = f1(predicted_flags, true, axis=0)
    has_f1 = ~np.isnan(single)
    ranked = [average_precision(true[:, k], probabilities[:, k]) for k in np.flatnonzero(true.any(axis=0))]
    return {
        "micro_f1": float(np.nan_to_num(f1(predicted_flags, true), nan=1.0)),
        "macro_f1": float(single[has_f1].mean()) if has_f1.any() else 1.0,
        "sample_f1": float(np.nan_to_num(f1(predicted_flags, true, axis=1), nan=1.0).mean()),
        "subset_accuracy": float((predicted_flags == true).all(axis=1).mean()),
        "mean_average_precision": float(np.mean(ranked)) if ranked else 0.0,
        **{f"f1/{label}": float(score) for label, score in zip(labels, single) if not np.isnan(score)},
    }


USUAL = 0.5
"""The default threshold."""


def best_threshold(true: Flags, probabilities: Probabilities) -> float:
    """Return the threshold with the highest F1 of `probabilities >= threshold`; both arrays have the same shape.

    It is midway between two probabilities, so that rounding changes no prediction; in a tie it is the one nearest to
    0.5. If no label is true it is 0.5.

    >>> best_threshold(np.array([True, False, True]), np.array([0.75, 0.125, 0.25]))
    0.1875
    """
    true, probabilities = true.ravel(), probabilities.ravel()
    if not true.any():
        return USUAL
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    ends = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # the last of each run of equal probabilities
    # F1 = 2 hits / (predicted + true), for the cut after each run of equal probabilities.
    scores = 2 * np.cumsum(true[order])[ends] / (ends + 1 + true.sum())
    upper = ranked[ends]
    lower = np.append(upper[1:], 0.0)
    middle = (lower + upper) / 2
    candidates = np.where(middle > lower, middle, upper)[scores == scores.max()]
    return float(candidates[np.abs(candidates - USUAL).argmin()])


def label_thresholds(true: Flags, probabilities: Probabilities) -> tuple[float, ...]:
    """Return the best threshold of each label, from two arrays (n, K); labels without rows get that of all labels."""
    together = best_threshold(true, probabilities)
    return tuple(
        best_threshold(true[:, k], probabilities[:, k]) if true[:, k].any() else together for k in range(true.shape[1])
    )
