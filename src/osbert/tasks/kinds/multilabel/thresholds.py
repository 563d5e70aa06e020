"""Thresholds of probabilities for multi-label classification, tuned for the highest F1 on development rows."""

from __future__ import annotations

import numpy as np

from osbert.tasks.kinds.multilabel.scores import Flags, Probabilities

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
