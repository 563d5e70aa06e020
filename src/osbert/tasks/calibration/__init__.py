"""Probabilities that mean what they say: one temperature for all of a model's scores (Guo et al. 2017).

softmax(scores / T) has the same ranking for every T > 0; the T of least cross-entropy on labelled rows makes the shares
as sure as the model is right. In 1/T the cross-entropy is convex, so there is one best T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.tasks.record import Prediction, Record

BINS = 15
"""Equal widths of confidence over which the calibration error is taken (Guo et al., section 2)."""
SHOWN_BINS = 10
"""Bins of a reliability diagram."""
BOUNDS = (0.01, 100.0)
"""The temperatures that are looked at."""
LEAST = 40
"""Fewer rows say nothing on a temperature that is fitted on one half and measured on the other."""

Shares = NDArray[np.floating]
Labels = NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A temperature, and the expected calibration error before and after.

    The temperature is fitted on all `rows`. The error after it is measured across: with the temperature of one half on
    the other half and the other way round, so that no row is judged by a temperature that it helped to fit. Where the
    cross-entropy, measured so, is none the less for it, the temperature is 1.
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


def columns(predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Shares, Labels] | None:
    """Return the shares (n, K) of predictions and the places (n,) of their records' labels among them.

    Where records have fewer labels to choose from than others the rest are NaN, which are no shares and count nowhere:
    a share of 0 is one of a label that the model rules out. None where there are no probabilities.
    """
    if not all(record.label in prediction.probabilities for prediction, record in zip(predictions, records)):
        return None
    most = max((len(prediction.probabilities) for prediction in predictions), default=0)
    shares = np.full((len(predictions), most), np.nan)
    labels = np.zeros(len(predictions), np.int64)
    for row, (prediction, record) in enumerate(zip(predictions, records)):
        shares[row, : len(prediction.probabilities)] = list(prediction.probabilities.values())
        labels[row] = list(prediction.probabilities).index(record.label)
    return shares, labels


def calibrate(shares: Shares, labels: Labels, *, seed: int = 0) -> Calibration | None:
    """Return the calibration of shares (n, K) against labels (n,), or None where there are fewer than LEAST rows.

    Shares that are NaN are those of labels that a row does not have, here and below. `seed` decides which rows make the
    halves.
    """
    rows = len(labels)
    if rows < LEAST:
        return None
    halves = np.array_split(np.random.Generator(np.random.PCG64(seed)).permutation(rows), 2)
    across = np.empty_like(shares, dtype=np.float64)
    for fitted, measured in (halves, halves[::-1]):
        across[measured] = cooled(shares[measured], temperature(shares[fitted], labels[fitted]))
    helps = cross_entropy(across, labels) < cross_entropy(shares, labels)
    before = expected_error(shares, labels)
    return Calibration(
        temperature=temperature(shares, labels) if helps else 1.0,
        error_before=before,
        error_after=expected_error(across, labels) if helps else before,
        rows=rows,
    )


def cross_entropy(shares: Shares, labels: Labels) -> float:
    """Return the mean of -log of the share (n, K) of the true label (n,)."""
    return -float(_logarithms(shares)[np.arange(len(labels)), labels].mean())


def temperature(shares: Shares, labels: Labels) -> float:
    """Return the T for which softmax(log shares / T) has the least cross-entropy; shares (n, K), labels (n,).

    The true label's target is (n + 1) / (n + 2) instead of 1, as Platt (1999, section 2.2) has it: where every row is
    right the best T would be 0, and every share 0 or 1.

    A model that is 90% sure and right three times in four is too sure; T is above 1 (here also because rows are few):

    >>> shares, labels = np.array([[0.9, 0.1]] * 4), np.array([0, 0, 0, 1])
    >>> found = temperature(shares, labels)
    >>> after = cooled(shares, found)
    >>> round(found, 2), round(float(after[0, 0]), 2)
    (3.17, 0.67)
    >>> round(expected_error(shares, labels), 2), round(expected_error(after, labels), 2)
    (0.15, 0.08)
    """
    from scipy.optimize import minimize_scalar

    scores = _logarithms(shares)
    there = ~np.isnan(shares)
    rows, counts = len(labels), there.sum(axis=1, keepdims=True)
    targets = np.where(there, 1 / (rows + 2) / np.maximum(counts - 1, 1), 0)
    targets[np.arange(rows), labels] = (rows + 1) / (rows + 2)
    wanted = (targets[there] * scores[there]).sum()

    def loss(logarithm: float) -> float:
        inverse = math.exp(-logarithm)
        scaled = scores * inverse
        top = scaled.max(axis=1)
        return float((top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))).sum() - inverse * wanted) / rows

    low, high = map(math.log, BOUNDS)
    return math.exp(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x)


def cooled(shares: Shares, temperature: float) -> NDArray[np.float64]:
    """Return the shares (n, K) that scores divided by `temperature` have; of a label that is not there 0."""
    scores = _logarithms(shares) / temperature
    found = np.exp(scores - scores.max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True)


def expected_error(shares: Shares, labels: Labels, *, bins: int = BINS) -> float:
    """Return the expected calibration error of shares (n, K): 0 where the model is as often right as it is sure.

    Rows go into bins of equal width by the share of their likeliest label; the error is the mean over rows of
    |share of right ones - mean share| of their bin (Guo et al. 2017, equation 3).
    """
    shares = np.nan_to_num(shares, nan=0.0)
    sure = shares.max(axis=1).astype(np.float64)
    right = (shares.argmax(axis=1) == labels).astype(np.float64)
    gaps = np.bincount(_bins(sure, bins), weights=right - sure, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Predictions of about one probability: how many, their mean `probability`, and the `rate` at which they came true.

    `low` is the lower edge of the bin, which is not in it but where it is 0, and `high` the upper one, which is.
    """

    low: float
    high: float
    count: int
    probability: float
    rate: float


def reliability(beliefs: Sequence[tuple[float, bool]], *, bins: int = SHOWN_BINS) -> list[ReliabilityBin]:
    """Return bins of equal width of probabilities, each given with whether it came true; empty bins are left out.

    >>> [(one.high, one.count, round(one.probability, 9)) for one in reliability([(0.6, True), (0.7, False)], bins=2)]
    [(1.0, 2, 0.65)]
    """
    sure, true = np.array([p for p, _ in beliefs], np.float64), np.array([one for _, one in beliefs], np.float64)
    places = _bins(sure, bins)
    counts, sums, hits = (np.bincount(places, weights=one, minlength=bins) for one in (None, sure, true))
    return [
        ReliabilityBin(
            low=place / bins,
            high=(place + 1) / bins,
            count=int(counts[place]),
            probability=float(sums[place] / counts[place]),
            rate=float(hits[place] / counts[place]),
        )
        for place in np.flatnonzero(counts).tolist()
    ]


def at_temperature(predictions: Sequence[Prediction], temperature: float) -> list[Prediction]:
    """Return predictions as they are with scores divided by another temperature than 1; the values stay."""

    def one(prediction: Prediction) -> Prediction:
        names, shares = [*prediction.probabilities], np.array([[*prediction.probabilities.values()]])
        return replace(prediction, probabilities=dict(zip(names, cooled(shares, temperature)[0].tolist())))

    return [one(prediction) if prediction.probabilities else prediction for prediction in predictions]


def _bins(sure: Shares, bins: int) -> NDArray[np.int64]:
    """Return the bin (n,) of each of n probabilities; a bin has its upper edge."""
    return np.clip(np.ceil(sure * bins).astype(np.int64) - 1, 0, bins - 1)


def _logarithms(shares: Shares) -> NDArray[np.float64]:
    """Return the logarithms of shares (n, K), minus infinity where there is no label."""
    return np.where(np.isnan(shares), -np.inf, np.log(np.maximum(shares.astype(np.float64), 1e-300)))
