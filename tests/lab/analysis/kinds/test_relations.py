"""Heads against relations: made-up attention whose head is known, chosen on some trees and scored on others."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from osbert.models.architecture import Architecture
from osbert_lab.analysis.kinds.contract import PlacedTree, TextPass, TokenMarks
from osbert_lab.analysis.kinds.relations import LEAST, Relations, by_word, predict_heads
from osbert_lab.analysis.tree_files import Tree

SIZES = Architecture(layers=1, heads=2, width=16, vocabulary=20, length=24)
NOWHERE = np.zeros(6, bool)
MARKS = TokenMarks(first=NOWHERE, separator=NOWHERE, punctuation=NOWHERE)


def placed(heads: tuple[int, ...], part: Literal["select", "score"]) -> PlacedTree:
    """Return a tree of one word a token, between two special pieces."""
    count = len(heads)
    relations = tuple("root" if head < 0 else "obj" for head in heads)
    tree = Tree(words=("w",) * count, heads=heads, relations=relations, tags=("X",) * count, path=Path("x"), line=1)
    tokens = np.zeros((count, count + 2), np.float32)
    tokens[np.arange(count), np.arange(count) + 1] = 1
    return PlacedTree(tree=tree, tokens=tokens, part=part)


def syntactic(heads: tuple[int, ...]) -> Tensor:
    """Return attention (T, T) of which most goes to special pieces, and the rest to the syntactic head."""
    weights = torch.zeros(len(heads) + 2, len(heads) + 2)
    weights[:, 0] = 0.9
    for word, head in enumerate(heads):
        weights[word + 1, max(head, 0) + 1] += 0.1
    return weights


def added(analysis: Relations, part: Literal["select", "score"], heads: tuple[int, ...]) -> None:
    right = syntactic(heads)
    upwards = torch.zeros_like(right)
    upwards[1:-1, 1:-1] = right[1:-1, 1:-1].T
    tree = placed(heads, part)
    wrong = torch.zeros(len(heads) + 2, len(heads) + 2)
    text = TextPass(number=0, marks=MARKS, states=(), attention=[torch.stack([wrong, right])], tree=tree)
    analysis.add(text)


def test_a_head_at_the_syntactic_head_is_always_right() -> None:
    analysis = Relations(SIZES, seed=0)
    for _ in range(LEAST):
        added(analysis, "select", (2, 0, -1, 1))
        added(analysis, "score", (3, 0, 1, -1))
    found = {one.where["relation"]: one for one in analysis.figures()}
    assert set(found) == {"all", "obj"}  # the root is none
    figure = found["obj"]
    assert figure.value == 1 and figure.n == 3 * LEAST
    assert (figure.where["layer"], figure.where["head"], figure.where["direction"]) == (1, 2, "dependent to head")
    assert figure.interval is not None and 0.85 < figure.interval[0] < 1
    assert figure.where["offset"] == -2 and figure.baselines["offset"] == 0  # chosen on 2 of 3, never right there
    assert "100.0%" in analysis.section([*found.values()]).html()


def test_the_head_is_not_chosen_on_the_trees_that_it_is_scored_on() -> None:
    analysis = Relations(SIZES, seed=0)
    for _ in range(LEAST):
        added(analysis, "select", (1, -1))
        added(analysis, "score", (-1, 0))
    [_, figure] = analysis.figures()
    assert figure.where["offset"] == 1 and figure.baselines["offset"] == 0


def test_few_dependents_give_no_figure() -> None:
    analysis = Relations(SIZES, seed=0)
    for _ in range(LEAST):
        added(analysis, "select", (1, -1))
    added(analysis, "score", (1, -1))
    assert analysis.figures() == [] and "obj" not in analysis.section([]).html()


def test_both_directions_are_read() -> None:
    weights = torch.zeros(1, 3, 3)
    weights[0, 0, 2] = weights[0, 1, 0] = 1.0
    found = predict_heads(weights)[:, 0]
    assert found[0, 0] == 2 and found[0, 1] == 0  # rows: where a word looks
    assert found[1, 2] == 0 and found[1, 0] == 1  # columns: who looks at it


def test_attention_by_word_is_the_sum_over_keys_and_the_mean_over_queries() -> None:
    weights = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
    tokens = torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    found = by_word(weights, tokens)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 3))
    assert found[0, 0, 1].item() == pytest.approx(weights[0, :2, 2].mean().item())
    assert found[0, 1, 0].item() == pytest.approx(weights[0, 2, :2].sum().item())
