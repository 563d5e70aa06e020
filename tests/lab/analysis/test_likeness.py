"""Laws of CKA, of the mean cosine and of the jackknife; and their equations spelt out."""

from __future__ import annotations

import numpy as np
import pytest

from osbert_lab.analysis.likeness import GROUPS, cka, jackknife, likeness, mean_cosine

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
ROTATION = np.linalg.qr(RNG.normal(size=(8, 8)))[0]


def test_states_that_differ_by_a_rotation_a_scale_and_a_shift_are_the_same() -> None:
    assert cka(X, X @ ROTATION) == pytest.approx(1) and cka(X, 3 * X + 5) == pytest.approx(1)


def test_independent_states_are_unrelated() -> None:
    found = [
        cka(rng.normal(size=(128, 64)), rng.normal(size=(128, 64))) for rng in map(np.random.default_rng, range(20))
    ]
    assert abs(np.mean(found)) < 0.02 and max(map(abs, found)) < 0.1


def test_cka_is_the_estimator_of_song_et_al() -> None:
    """Their equation 5, spelt out as the U-statistic over all four different items."""
    one, two = X[:6, :3], X[:6, 3:]
    grams = one @ one.T, two @ two.T

    def statistic(k: np.ndarray, m: np.ndarray) -> float:
        items = range(len(k))
        found = [
            k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q])
            for i in items for j in items for q in items for r in items
            if len({i, j, q, r}) == 4
        ]  # fmt: skip
        return float(np.mean(found))

    expected = statistic(*grams) / (statistic(grams[0], grams[0]) * statistic(grams[1], grams[1])) ** 0.5
    assert cka(one, two) == pytest.approx(expected)


def test_the_mean_cosine_is_that_of_all_pairs() -> None:
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    pairs = [unit[i] @ unit[j] for i in range(len(X)) for j in range(i)]
    assert mean_cosine(X) == pytest.approx(np.mean(pairs))


def test_the_jackknife_of_a_mean_is_near_its_standard_error() -> None:
    values = RNG.normal(size=1000)
    whole, interval = jackknife(lambda index: float(values[index].mean()), 1000)
    assert interval is not None and whole == values.mean()
    assert interval[1] - whole == pytest.approx(1.96 / 1000**0.5, rel=0.6)


def test_each_interval_is_that_of_cka_without_a_group() -> None:
    states = [X, X[:, :3] ** 2, RNG.normal(size=(60, 5))]
    found = likeness(states)
    assert found.shape == (1 + GROUPS, 3, 3) and np.allclose(found, found.swapaxes(1, 2))
    for group in range(GROUPS):
        left = np.arange(60) % GROUPS != group
        assert found[1 + group, 0, 1] == pytest.approx(cka(states[0][left], states[1][left]))
    assert np.isnan(likeness([X, np.full((60, 2), 0.5)])[0, 0, 1])
