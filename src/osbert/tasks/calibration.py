"""Temperature scaling: one temperature T for all of a model's logits (Guo et al. 2017, section 4.2).

softmax(logits / T) ranks the labels alike for every T > 0. The T that minimises the cross-entropy on labelled rows
makes the confidence match the accuracy. The cross-entropy is convex in 1/T, so the minimum is unique.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.tasks.probabilities import as_array, with_array
from osbert.tasks.record import Prediction, Record

BINS = 15
"""Bins of equal width for the expected calibration error (Guo et al., section 2)."""
SHOWN_BINS = 10
"""Bins of a reliability diagram."""
BOUNDS = (0.01, 100.0)
"""The lowest and the highest temperature of the search."""
LEAST = 40
"""Fewest rows for which a temperature is fitted: half of them fit it, the other half measure it."""

Probabilities = NDArray[np.floating]
Labels = NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A temperature, and the expected calibration error before and after it is applied.

    The temperature is fitted on all `rows`. `error_after` is cross-validated: each half is measured with the
    temperature that was fitted on the other half. If that does not lower the cross-entropy, the temperature is 1.
    """

    temperature: float
    error_before: float
    error_after: float
    rows: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON."""
        return asdict(self)

    def describe(self) -> str:
        """Return it in one sentence for the user."""
        if self.temperature == 1:
            return (
                f"probabilities: left as they are, since a temperature that is fitted on one half of the {self.rows:,} "
                f"development rows does not suit the other half; expected calibration error {self.error_before:.4f}"
            )
        return (
            f"probabilities: temperature {self.temperature:.3f}, fitted on the {self.rows:,} development rows; "
            f"expected calibration error {self.error_before:.4f} before, {self.error_after:.4f} after (fitted on one "
            "half of these rows and measured on the other, both ways)"
        )


def columns(predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Probabilities, Labels] | None:
    """Return the probabilities (n, K) of predictions and the index (n,) of each record's label among them.

    Records may have different numbers of labels (choices): the columns that a record lacks are NaN and are ignored. A
    probability of 0 is another matter: the model rules that label out. None if a prediction has no probabilities.
    """
    if not all(record.label in prediction.probabilities for prediction, record in zip(predictions, records)):
        return None
    most = max((len(prediction.probabilities) for prediction in predictions), default=0)
    probabilities = np.full((len(predictions), most), np.nan)
    labels = np.zeros(len(predictions), np.int64)
    for row, (prediction, record) in enumerate(zip(predictions, records)):
        probabilities[row, : len(prediction.probabilities)] = as_array(prediction.probabilities)
        labels[row] = list(prediction.probabilities).index(record.label)
    return probabilities, labels


def calibrate(probabilities: Probabilities, labels: Labels, *, seed: int = 0) -> Calibration | None:
    """Return the calibration of probabilities (n, K) against labels (n,); None for fewer than LEAST rows.

    NaN stands for a label that a row does not have, here and below. `seed` decides how the rows are split in halves.
    """
    rows = len(labels)
    if rows < LEAST:
        return None
    halves = np.array_split(np.random.Generator(np.random.PCG64(seed)).permutation(rows), 2)
    across = np.empty_like(probabilities, dtype=np.float64)
    for fitted, measured in (halves, halves[::-1]):
        divisor = temperature(probabilities[fitted], labels[fitted])
        across[measured] = apply_temperature(probabilities[measured], divisor)
    helps = cross_entropy(across, labels) < cross_entropy(probabilities, labels)
    before = measure_calibration(probabilities, labels)
    return Calibration(
        temperature=temperature(probabilities, labels) if helps else 1.0,
        error_before=before,
        error_after=measure_calibration(across, labels) if helps else before,
        rows=rows,
    )


def cross_entropy(probabilities: Probabilities, labels: Labels) -> float:
    """Return the mean negative log-probability of the true labels (n,), given probabilities (n, K)."""
    return -float(_logarithms(probabilities)[np.arange(len(labels)), labels].mean())


def temperature(probabilities: Probabilities, labels: Labels) -> float:
    """Return the T that minimises the cross-entropy of softmax(log(probabilities) / T).

    probabilities: (n, K), labels: (n,). The target of the true label is (n + 1) / (n + 2), not 1 (Platt 1999,
    section 2.2). With a target of 1 and every row right, the best T would be 0 and every probability 0 or 1.

    A model that is 90% sure and right three times in four is overconfident, so T is above 1 (with four rows Platt's
    targets raise it further):

    >>> probabilities, labels = np.array([[0.9, 0.1]] * 4), np.array([0, 0, 0, 1])
    >>> fitted = temperature(probabilities, labels)
    >>> after = apply_temperature(probabilities, fitted)
    >>> round(fitted, 2), round(float(after[0, 0]), 2)
    (3.17, 0.67)
    >>> round(measure_calibration(probabilities, labels), 2), round(measure_calibration(after, labels), 2)
    (0.15, 0.08)
    """
    from scipy.optimize import minimize_scalar

    scores = _logarithms(probabilities)
    label_mask = ~np.isnan(probabilities)
    rows, counts = len(labels), label_mask.sum(axis=1, keepdims=True)
    targets = np.where(label_mask, 1 / (rows + 2) / np.maximum(counts - 1, 1), 0)
    targets[np.arange(rows), labels] = (rows + 1) / (rows + 2)
    wanted = (targets[label_mask] * scores[label_mask]).sum()

    # Cross-entropy = log-sum-exp(scores / T) - (targets . scores) / T. The search runs over log T, where 0.1 is as far
    # from 1 as 10 is. The largest score is subtracted before the exponential, so that nothing overflows.
    def loss(logarithm: float) -> float:
        inverse = math.exp(-logarithm)
        scaled = scores * inverse
        top = scaled.max(axis=1)
        return float((top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))).sum() - inverse * wanted) / rows

    low, high = map(math.log, BOUNDS)
    return math.exp(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x)


def apply_temperature(probabilities: Probabilities, temperature: float) -> NDArray[np.float64]:
    """Return softmax(log(probabilities) / temperature), (n, K); 0 for labels that a row does not have."""
    scores = _logarithms(probabilities) / temperature
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def measure_calibration(probabilities: Probabilities, labels: Labels, *, bins: int = BINS) -> float:
    """Return the expected calibration error of probabilities (n, K), from 0 (best) to 1.

    Rows go into bins of equal width by the probability of their likeliest label (their confidence). The error is the
    mean of |accuracy - mean confidence| of the bins, weighted by their rows (Guo et al. 2017, equation 3).
    """
    probabilities = np.nan_to_num(probabilities, nan=0.0)
    sure = probabilities.max(axis=1).astype(np.float64)
    right = (probabilities.argmax(axis=1) == labels).astype(np.float64)
    # The sum of (right - confidence) of a bin is its row count times (accuracy - mean confidence): no division needed.
    gaps = np.bincount(_bins(sure, bins), weights=right - sure, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Predictions of similar probability: their `count`, mean `probability`, and the `rate` at which they were right.

    The bin is the interval (low, high]; the first one includes 0.
    """

    low: float
    high: float
    count: int
    probability: float
    rate: float


def reliability(beliefs: Sequence[tuple[float, bool]], *, bins: int = SHOWN_BINS) -> list[ReliabilityBin]:
    """Return the bins of a reliability diagram that are not empty.

    beliefs: a probability and whether the prediction was right, for each prediction.

    >>> bins = reliability([(0.6, True), (0.7, False)], bins=2)
    >>> [(bin.high, bin.count, round(bin.probability, 9)) for bin in bins]
    [(1.0, 2, 0.65)]
    """
    sure, true = np.array(beliefs, np.float64).reshape(-1, 2).T
    bin_indices = _bins(sure, bins)
    counts, sums, hits = (np.bincount(bin_indices, weights=weights, minlength=bins) for weights in (None, sure, true))
    return [
        ReliabilityBin(
            low=index / bins,
            high=(index + 1) / bins,
            count=int(counts[index]),
            probability=float(sums[index] / counts[index]),
            rate=float(hits[index] / counts[index]),
        )
        for index in np.flatnonzero(counts).tolist()
    ]


def at_temperature(predictions: Sequence[Prediction], temperature: float) -> list[Prediction]:
    """Return the predictions with their probabilities at another temperature; the predicted values stay."""

    def rescale(prediction: Prediction) -> Prediction:
        shares = apply_temperature(as_array(prediction.probabilities)[None], temperature)[0]
        return replace(prediction, probabilities=with_array(prediction.probabilities, shares))

    return [rescale(prediction) if prediction.probabilities else prediction for prediction in predictions]


def _bins(sure: Probabilities, bins: int) -> NDArray[np.int64]:
    """Return the bin (n,) of each of n probabilities; bins include their upper edges."""
    return np.clip(np.ceil(sure * bins).astype(np.int64) - 1, 0, bins - 1)


def _logarithms(probabilities: Probabilities) -> NDArray[np.float64]:
    """Return log-probabilities (n, K); minus infinity for labels that a row does not have."""
    return np.where(np.isnan(probabilities), -np.inf, np.log(np.maximum(probabilities.astype(np.float64), 1e-300)))
