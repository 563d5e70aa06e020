"""Intervals by the bootstrap and by Wilson, against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from osbert.evaluation.bootstrap import (
    bootstrap,
    bootstrap_interval,
    bootstrap_means,
    percentiles,
    randomization_test,
    wilson_interval,
)


def test_the_interval_of_a_mean_is_what_scipy_says() -> None:
    values = np.random.default_rng(3).normal(size=80)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, random_state=1)
    assert bootstrap_interval(values.tolist()) == pytest.approx(tuple(theirs.confidence_interval), abs=0.04)


def test_an_interval_is_a_function_of_its_seed() -> None:
    values = np.random.default_rng(0).normal(size=30).tolist()
    assert bootstrap_interval(values, seed=1) == bootstrap_interval(values, seed=1)
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)


def test_rows_that_do_not_count_are_left_out_and_one_row_has_no_interval() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    assert bootstrap_interval([math.nan, *values]) == bootstrap_interval(values)
    assert all(map(math.isnan, bootstrap_interval([1.0, math.nan])))


def test_a_statistic_sees_the_samples_that_a_mean_sees() -> None:
    values = np.random.default_rng(0).normal(size=(50, 2))
    figures = bootstrap(lambda rows: values[rows].mean(axis=0).tolist(), len(values))
    assert figures == pytest.approx(bootstrap_means(values))
    assert percentiles(figures[:, 0]) == pytest.approx(bootstrap_interval(values[:, 0].tolist()))


@given(count=st.integers(1, 300), part=st.floats(0, 1))
def test_wilson_is_what_scipy_says(count: int, part: float) -> None:
    hits = round(part * count)
    theirs = stats.binomtest(hits, count).proportion_ci(method="wilson")
    assert wilson_interval(hits, count) == pytest.approx((theirs.low, theirs.high))


def test_randomization_equals_scipy() -> None:

    generator = np.random.default_rng(3)
    few, more = generator.normal(0.3, 1.0, 9), generator.normal(0.25, 1.0, 60)
    exact = stats.permutation_test((few,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert randomization_test(few) == pytest.approx(exact.pvalue)
    sampled = stats.permutation_test((more,), np.mean, permutation_type="samples", n_resamples=20_000, rng=generator)
    assert randomization_test(more) == pytest.approx(sampled.pvalue, abs=0.02)
    assert randomization_test(np.zeros(5)) == 1 and randomization_test(np.array([0.2])) == 1
