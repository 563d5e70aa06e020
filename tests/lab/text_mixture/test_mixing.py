"""The rows of each data set in an epoch: T5's rates, their limits, and epochs that keep them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert_lab.text_mixture.mixing import draw_rows, epoch_rows, mixing_rates

SIZES = st.lists(st.integers(1, 10**9), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 10**9), st.floats(0.05, 100))
def test_rates_are_those_of_the_paper(sizes: list[int], limit: int, temperature: float) -> None:
    rates = mixing_rates(sizes, limit=limit, temperature=temperature)
    assert rates.sum() == pytest.approx(1)
    # As t5's code: rate_num_examples with maximum and temperature, in logarithms.
    logs = np.log(np.minimum(sizes, limit)) / temperature
    assert rates == pytest.approx(np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum(), abs=1e-9)


@given(SIZES)
def test_rates_between_proportion_and_equality(sizes: list[int]) -> None:
    assert mixing_rates(sizes, limit=2**60, temperature=1) == pytest.approx(np.array(sizes) / sum(sizes))
    assert mixing_rates(sizes, limit=1, temperature=1) == pytest.approx(np.full(len(sizes), 1 / len(sizes)))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 80), st.floats(0.2, 10), st.integers(0, 9))
def test_an_epoch_has_as_many_rows_and_repeats_evenly(
    sizes: list[int], limit: int, temperature: float, seed: int
) -> None:
    counts = epoch_rows(mixing_rates(sizes, limit=limit, temperature=temperature), sum(sizes))
    assert counts.sum() == sum(sizes) and counts.min() >= 1
    owners = np.repeat(np.arange(len(sizes)), sizes)
    drawn = draw_rows(owners, counts, np.random.default_rng(seed))
    assert np.bincount(owners[drawn], minlength=len(sizes)).tolist() == counts.tolist()
    for index in range(len(sizes)):
        times = np.bincount(drawn, minlength=len(owners))[owners == index]
        assert np.ptp(times) <= 1


def test_in_proportion_each_row_comes_once_and_others_vary() -> None:
    owners = np.repeat([0, 1], [30, 10])
    counts = epoch_rows(mixing_rates([30, 10], limit=100, temperature=1), 40)
    assert sorted(draw_rows(owners, counts, np.random.default_rng(0)).tolist()) == list(range(40))
    counts = epoch_rows(mixing_rates([30, 10], limit=10, temperature=1), 40)
    assert counts.tolist() == [20, 20]
    seen = [set(draw_rows(owners, counts, np.random.default_rng(seed)).tolist()) for seed in range(12)]
    assert seen[0] != seen[1] and set().union(*seen) == set(range(40))
