"""Tests of two models on the same rows, against scipy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from osbert.evaluation.bootstrap import bootstrap_means, holm, mcnemar, score_difference

COUNTS = st.integers(0, 60)


@given(ours=COUNTS, theirs=COUNTS, both=COUNTS)
def test_mcnemar_is_the_binomial_test_of_the_rows_on_which_they_differ(ours: int, theirs: int, both: int) -> None:
    found = mcnemar([True] * (ours + both) + [False] * theirs, [False] * ours + [True] * (both + theirs))
    assert (found.only_first, found.only_second) == (ours, theirs)
    known = stats.binomtest(ours, ours + theirs).pvalue if ours + theirs else 1.0
    assert found.p_value == pytest.approx(known)


def test_mcnemar_of_a_published_table() -> None:
    """Agresti, Categorical Data Analysis (2002), table 10.1: 150 and 86 changed their minds; exact p 3.7e-05."""
    found = mcnemar([True] * 150 + [False] * 86, [False] * 150 + [True] * 86)
    assert found.p_value == pytest.approx(3.716e-05, rel=1e-3)


def test_a_model_does_not_differ_from_itself() -> None:
    sample = bootstrap_means(np.random.default_rng(0).random(40))
    found = score_difference((0.5, 0.5), sample, sample)
    assert (found.difference, found.interval, found.p_value) == (0, (0, 0), 1)


def test_samples_without_a_score_say_nothing() -> None:
    sample = bootstrap_means(np.random.default_rng(0).random(40))
    gaps = np.where(np.arange(len(sample)) % 3, sample, np.nan)
    found = score_difference((0.5, 0.5), gaps, sample)
    assert (found.interval, found.p_value) == ((0, 0), 1)
    never = score_difference((np.nan, 0.5), np.full(len(sample), np.nan), sample)
    assert never.p_value == 1 and np.isnan(never.interval).all()


def test_a_difference_on_every_row_is_found_and_its_sign_kept() -> None:
    rows = np.random.default_rng(0).random(40)
    samples = bootstrap_means(np.stack([rows, rows + 0.1], axis=1)).T
    found = score_difference((rows.mean(), rows.mean() + 0.1), *samples)
    assert found.difference == pytest.approx(-0.1) and found.interval == pytest.approx((-0.1, -0.1))
    assert found.p_value == pytest.approx(2 / 1001)


def test_the_bootstrap_agrees_with_the_t_test_of_pairs() -> None:
    rng = np.random.default_rng(5)
    first = rng.normal(size=200)
    second = first + rng.normal(0.08, 0.5, size=200)
    samples = bootstrap_means(np.stack([first, second], axis=1)).T
    found = score_difference((first.mean(), second.mean()), *samples)
    known = stats.ttest_rel(first, second)
    low, high = known.confidence_interval()
    assert found.p_value == pytest.approx(known.pvalue, abs=0.03)
    assert found.interval == pytest.approx((low, high), abs=0.02)


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_its_steps_reject(p_values: list[float]) -> None:
    corrected = holm(p_values)
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    stepwise = True
    for rank, place in enumerate(order):  # step down until the first that is not below level / (m - rank)
        stepwise = stepwise and p_values[place] * (len(p_values) - rank) <= 0.05
        assert (corrected[place] <= 0.05) == stepwise
