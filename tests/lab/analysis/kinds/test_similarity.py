"""Which heads are alike: the divergence's known values, and scaling that finds places again."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from osbert.models.architecture import Architecture
from osbert_lab.analysis.kinds.contract import TextPass, TokenMarks
from osbert_lab.analysis.kinds.similarity import TEXTS, Similarity, divergences, scale_to_plane

SIZES = Architecture(layers=2, heads=2, width=16, vocabulary=20, length=24)


def test_heads_that_share_no_token_are_ln_2_apart_and_equal_ones_nothing() -> None:
    one, other = torch.eye(4), torch.eye(4).roll(1, 0)
    found = divergences(torch.stack([one, other, one]))
    assert found[0, 1].item() == pytest.approx(math.log(2)) and found[0, 2] == 0
    assert torch.equal(found, found.T)


def test_the_divergence_is_the_textbooks() -> None:
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.1, 0.2, 0.7])
    middle = (p + q) / 2
    expected = ((p * (p / middle).log()).sum() + (q * (q / middle).log()).sum()) / 2
    found = divergences(torch.stack([p, q])[:, None])
    assert found[0, 1].item() == pytest.approx(expected.item(), abs=1e-6)


def test_scaling_finds_places_on_a_plane_again() -> None:
    places = np.random.default_rng(0).normal(size=(9, 2))
    distances = np.square(places[:, None] - places).sum(-1)
    found, shown = scale_to_plane(distances)
    assert shown == pytest.approx(1)
    np.testing.assert_allclose(np.square(found[:, None] - found).sum(-1), distances, atol=1e-9)
    np.testing.assert_array_equal(found, scale_to_plane(distances)[0])


def passed(number: int) -> TextPass:
    weights = torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(number)).softmax(-1)
    nowhere = np.zeros(5, bool)
    marks = TokenMarks(first=nowhere, separator=nowhere, punctuation=nowhere)
    return TextPass(number=number, marks=marks, states=(), attention=[weights[:2], weights[2:]])


def test_only_the_first_texts_are_compared() -> None:
    analysis = Similarity(SIZES, seed=0)
    for number in range(TEXTS + 3):
        analysis.add(passed(number))
    found = analysis.figures()
    within = [one for one in found if one.name == "divergence_within"]
    assert [one.n for one in within] == [TEXTS, TEXTS] and within[0].baselines["between layers"] > 0
    assert sum(one.name == "map_across" for one in found) == 4
    assert "head 2-2" in analysis.section(found).html()


def test_a_model_of_one_head_has_a_map_and_no_divergence() -> None:
    analysis = Similarity(SIZES, seed=0)
    for number in (0, 1):
        assert analysis.figures() == []  # neither is there one of a single text
        one = passed(number)
        analysis.add(TextPass(number=number, marks=one.marks, states=(), attention=[one.attention[0][:1]]))
    assert {figure.name for figure in analysis.figures()} == {"map_shows", "map_across", "map_up"}
