"""Scores of multi-label predictions: F1 over all, by label and by row, exact rows, and mean average precision.

n rows, K labels. Where a score would divide by 0: F1 is 1 where there is nothing to find and nothing is predicted, of a
row and over all (scikit-learn's zero_division=1); a label that neither the rows nor the predictions have is left out of
the macro F1 (zero_division=nan), and one that no row has out of the mean average precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
