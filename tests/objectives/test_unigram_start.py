"""Objectives that score every piece can start at the pieces' shares of the corpus, so that they need not be learnt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from osbert.models.architecture import Architecture
from osbert.objectives import Objective
from osbert.objectives.left_to_right import LeftToRight
from osbert.objectives.mlm import MaskedLanguage

SIZES = Architecture(layers=1, heads=1, width=8, vocabulary=5, length=8)


@pytest.mark.parametrize(("kind", "direction"), [(MaskedLanguage, "both"), (LeftToRight, "left_to_right")])
def test_the_bias_starts_at_the_unigram_probabilities_when_asked(kind: type[Objective], direction: str) -> None:
    backbone = replace(SIZES, direction=direction).build()
    for objective in (kind(), kind(unigram_start=True)):
        head = objective.head(backbone)
        objective.begin(head, np.array([0, 9, 90, 0, 897]))
        bias = head.get_parameter("bias")
        if objective.unigram_start:
            torch.testing.assert_close(bias.exp(), torch.tensor([1, 10, 91, 1, 898]) / 1001)
        else:
            assert not bias.any()


@pytest.mark.parametrize(("kind", "direction"), [(MaskedLanguage, "both"), (LeftToRight, "left_to_right")])
def test_heads_without_biases_have_none_to_start_at(kind: type[Objective], direction: str) -> None:
    sizes = replace(SIZES, direction=direction, piece_transform=False)
    assert not list(kind().objections(sizes))
    assert any("model.piece_transform" in one for one in kind(unigram_start=True).objections(sizes))


@pytest.mark.parametrize(("kind", "direction"), [(MaskedLanguage, "both"), (LeftToRight, "left_to_right")])
def test_biases_without_a_transform_are_started(kind: type[Objective], direction: str) -> None:
    sizes = replace(SIZES, direction=direction, piece_transform=False, piece_biases=True)
    objective = kind(unigram_start=True)
    assert not list(objective.objections(sizes))
    head = objective.head(sizes.build())
    objective.begin(head, np.array([0, 9, 90, 0, 897]))
    assert head.get_parameter("bias").any()
