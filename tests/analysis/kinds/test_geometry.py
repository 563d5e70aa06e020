"""The geometry of states: laws of CKA and of the mean cosine, and states that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from osbert.analysis.kinds.contract import TextPass, TokenMarks
from osbert.analysis.kinds.geometry import LEAST, Geometry, cka, jackknife, mean_cosine
from osbert.models.architecture import Architecture

SIZES = Architecture(layers=1, heads=2, width=16, vocabulary=20, length=24)
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


def passed(number: int, length: int = 4) -> TextPass:
    index = np.arange(length)
    marks = TokenMarks(first=index == 0, separator=index == length - 1, punctuation=index < 0)
    states = torch.from_numpy(np.random.default_rng(number).normal(size=(length, 16)))
    return TextPass(number=number, marks=marks, states=[states, 2 * states])


def test_layers_that_differ_by_a_scale_are_alike() -> None:
    analysis = Geometry(SIZES, seed=0)
    for number in range(LEAST):
        analysis.add(passed(number))
    found = analysis.figures()
    [alike] = [one for one in found if one.name == "cka" and one.where == {"layer": 1, "other": 0}]
    assert alike.value == pytest.approx(1) and alike.n == LEAST
    assert {one.where["layer"] for one in found if one.name == "mean_cosine"} == {0, 1}
    assert "CKA" in analysis.section(found).html()


def test_too_few_tokens_give_no_figure_and_special_pieces_are_not_drawn() -> None:
    analysis = Geometry(SIZES, seed=0)
    for number in range(LEAST):
        analysis.add(passed(number, length=2))
    assert analysis.states == [] and analysis.figures() == []


def test_a_layer_whose_states_do_not_vary_is_like_no_other() -> None:
    analysis = Geometry(SIZES, seed=0)
    rng = np.random.default_rng(1)
    none = np.zeros(3, bool)
    for number in range(LEAST):
        states = [torch.full((3, 4), 0.1), torch.from_numpy(rng.normal(size=(3, 4)))]
        marks = TokenMarks(first=none, separator=none, punctuation=none)
        analysis.add(TextPass(number=number, marks=marks, states=states))
    found = analysis.figures()
    assert [one.where for one in found if one.name == "cka" and one.where["layer"] != one.where["other"]] == []
    assert "nan" not in Geometry.section(found).parts[1]
