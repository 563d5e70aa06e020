"""A temperature against a search by hand, laws of scaling, and the expected calibration error against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.tasks import Prediction, Record
from osbert.tasks.calibration import LEAST, apply_temperature, calibrate, columns, measure_calibration, temperature


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def drawn(seed: int, *, rows: int = 400, labels: int = 3, sharpness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return shares (rows, labels) that are `sharpness` times as sure as the labels, drawn by them, are."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(rows, labels)) * 2
    truth = softmax(scores)
    return softmax(scores * sharpness), np.array([rng.choice(labels, p=row) for row in truth])


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 3.0])
def test_the_temperature_is_that_of_least_cross_entropy(sharpness: float) -> None:
    shares, labels = drawn(0, sharpness=sharpness)
    rows, count = shares.shape
    targets = np.full(shares.shape, 1 / (rows + 2) / (count - 1))
    targets[np.arange(rows), labels] = (rows + 1) / (rows + 2)
    looked_at = np.linspace(0.05, 6, 6001)
    losses = [-(targets * np.log(apply_temperature(shares, one))).sum() for one in looked_at]
    assert temperature(shares, labels) == pytest.approx(looked_at[int(np.argmin(losses))], abs=1e-3)


def test_shares_that_tell_the_truth_are_left_nearly_as_they_are() -> None:
    shares, labels = drawn(1, rows=4000)
    assert temperature(shares, labels) == pytest.approx(1, abs=0.08)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), factor=st.floats(0.3, 3))
def test_scaled_scores_have_a_scaled_temperature_and_the_same_shares(seed: int, factor: float) -> None:
    shares, labels = drawn(seed, rows=100)
    scaled = apply_temperature(shares, 1 / factor)
    np.testing.assert_allclose(temperature(scaled, labels), factor * temperature(shares, labels), rtol=1e-3)
    np.testing.assert_allclose(apply_temperature(scaled, factor), shares, atol=1e-9)
    assert (apply_temperature(shares, factor).argmax(axis=1) == shares.argmax(axis=1)).all()


def test_rows_that_are_all_right_leave_a_finite_temperature() -> None:
    labels = np.arange(60) % 2
    shares = np.where(np.eye(2)[labels] == 1, 0.99, 0.01)
    found = temperature(shares, labels)
    assert 0.05 < found < 20
    assert apply_temperature(shares, found).max() == pytest.approx(61 / 62, abs=1e-4)


def test_shares_of_exactly_nothing_can_be_fitted() -> None:
    shares = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]] * 20)
    labels = np.array([0, 1, 1] * 20)
    found = temperature(shares, labels)
    assert found == pytest.approx(100, rel=1e-3)
    assert np.isfinite(apply_temperature(shares, found)).all()


def plain_error(shares: np.ndarray, labels: np.ndarray, bins: int) -> float:
    total = 0.0
    for low in range(bins):
        inside = [
            (row.max(), int(row.argmax() == label))
            for row, label in zip(shares, labels)
            if low / bins < row.max() <= (low + 1) / bins
        ]
        if inside:
            sure, right = zip(*inside)
            total += len(inside) / len(labels) * abs(np.mean(right) - np.mean(sure))
    return total


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_error_is_that_of_a_plain_loop(bins: int) -> None:
    shares, labels = drawn(2, sharpness=2.5)
    assert measure_calibration(shares, labels, bins=bins) == pytest.approx(plain_error(shares, labels, bins))


def test_the_error_after_is_measured_on_rows_that_did_not_fit_it() -> None:
    shares, labels = drawn(3, sharpness=3)
    found = calibrate(shares, labels)
    assert found is not None and found.rows == 400
    assert found.temperature == pytest.approx(3, rel=0.2)
    assert found.error_after < 0.6 * found.error_before
    itself = measure_calibration(apply_temperature(shares, found.temperature), labels)
    assert found.error_after != itself
    assert "one half" in found.describe() and found.as_dict()["temperature"] == found.temperature


def test_a_temperature_that_does_not_suit_other_rows_is_not_kept() -> None:
    """The model is right on one half of the rows, which wants it surer, and wrong on the other."""
    labels = np.zeros(40, np.int64)
    labels[np.random.Generator(np.random.PCG64(7)).permutation(40)[:20]] = 1
    shares = np.tile([0.55, 0.45], (40, 1))
    found = calibrate(shares, labels, seed=7)
    assert found is not None and found.temperature == 1
    assert found.error_before == found.error_after == measure_calibration(shares, labels)
    assert "left as they are" in found.describe() and "40 development rows" in found.describe()


def test_labels_that_a_row_does_not_have_count_nowhere() -> None:
    shares, labels = drawn(5, sharpness=2, labels=2)
    padded = np.concatenate([shares, np.full((len(labels), 3), np.nan)], axis=1)
    assert temperature(padded, labels) == pytest.approx(temperature(shares, labels), rel=1e-6)
    assert measure_calibration(padded, labels) == measure_calibration(shares, labels)
    np.testing.assert_allclose(apply_temperature(padded, 2)[:, :2], apply_temperature(shares, 2))
    assert not apply_temperature(padded, 2)[:, 2:].any()


def test_too_few_rows_are_not_calibrated() -> None:
    shares, labels = drawn(4, rows=LEAST - 1)
    assert calibrate(shares, labels) is None


def test_the_columns_of_predictions() -> None:
    records = [Record(number=0, texts=("x",), label="b"), Record(number=1, texts=("y",), label="a")]
    said = [Prediction(value="b", probabilities={"a": 0.2, "b": 0.8}), Prediction(value="a", probabilities={"a": 1.0})]
    found = columns(said, records)
    assert found is not None
    shares, labels = found
    assert labels.tolist() == [1, 0] and shares[0].tolist() == [0.2, 0.8]
    assert shares[1, 0] == 1 and np.isnan(shares[1, 1])  # the second had no b to choose
    assert columns([Prediction(value=0.5), Prediction(value=1.0)], records) is None
