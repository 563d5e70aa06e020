"""Scores of several labels equal scikit-learn's, and thresholds are the best that there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

from osbert.tasks.kinds.multilabel.prediction import (
    average_precision,
    best_threshold,
    label_scores,
    label_thresholds,
    matrix,
)

LABELS = ["a", "b", "c"]
shapes = st.integers(1, 12).map(lambda rows: (rows, len(LABELS)))
FEW = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Draw what rows have, what is predicted, and probabilities with ties."""
    shape = draw(shapes)
    true, said = (draw(arrays(np.bool_, shape)) for _ in range(2))
    return true, said, draw(arrays(np.float64, shape, elements=FEW))


@settings(max_examples=25)
@given(drawn=tables())
def test_scores_equal_scikit_learns(drawn: tuple[Any, Any, Any]) -> None:
    true, said, shares = drawn
    scores = label_scores(said, true, shares, LABELS)
    assert scores["micro_f1"] == pytest.approx(f1_score(true, said, average="micro", zero_division=1))
    assert scores["sample_f1"] == pytest.approx(f1_score(true, said, average="samples", zero_division=1))
    assert scores["subset_accuracy"] == pytest.approx(accuracy_score(true, said))
    macro = f1_score(true, said, average="macro", zero_division=np.nan)
    assert scores["macro_f1"] == pytest.approx(1.0 if np.isnan(macro) else macro)  # nothing true, nothing predicted
    each = f1_score(true, said, average=None, zero_division=np.nan)
    shown = {name.removeprefix("f1/"): score for name, score in scores.items() if "/" in name}
    assert shown == pytest.approx({name: one for name, one in zip(LABELS, each) if not np.isnan(one)})
    there = true.any(axis=0)
    expected = average_precision_score(true[:, there], shares[:, there]) if there.any() else 0.0
    assert scores["mean_average_precision"] == pytest.approx(expected)


def test_average_precision_by_hand_and_without_a_row() -> None:
    true = np.array([True, False, True, False])
    assert average_precision(true, np.array([0.9, 0.8, 0.7, 0.1])) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(true, np.full(4, 0.5)) == 0.5
    assert average_precision(np.zeros(4, np.bool_), np.full(4, 0.5)) == 0.0


def test_labels_that_are_not_known_count_nowhere() -> None:
    assert matrix([("a", "x"), ()], ["a", "b"]).tolist() == [[True, False], [False, False]]


@settings(max_examples=25)
@given(drawn=tables())
def test_no_threshold_is_better(drawn: tuple[Any, Any, Any]) -> None:
    true, _, shares = drawn
    found = best_threshold(true, shares)
    assert 0 <= found <= 1
    if not true.any():
        assert found == 0.5
        return

    def score(threshold: float) -> float:
        return float(f1_score(true.ravel(), shares.ravel() >= threshold, zero_division=0))

    assert score(found) == pytest.approx(max(score(one) for one in np.unique(shares)))
    for threshold, column in zip(label_thresholds(true, shares), range(3)):
        own = best_threshold(true[:, column], shares[:, column])
        assert threshold == (own if true[:, column].any() else found)


@given(low=st.floats(0, 1), high=st.floats(0, 1))
def test_a_threshold_parts_any_two_probabilities(low: float, high: float) -> None:
    """Neighbouring numbers have none between them."""
    if low == high:
        return
    low, high = sorted((low, high))
    assert low < best_threshold(np.array([False, True]), np.array([low, high])) <= high
