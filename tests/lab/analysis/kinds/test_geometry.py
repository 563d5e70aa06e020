"""The geometry of states: what is drawn, and states that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from osbert.models.architecture import Architecture
from osbert_lab.analysis.kinds.contract import TextPass, TokenMarks
from osbert_lab.analysis.kinds.geometry import Geometry
from osbert_lab.analysis.likeness import LEAST

SIZES = Architecture(layers=1, heads=2, width=16, vocabulary=20, length=24)


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
