"""Trees in the states by layer: states that are the tree, and states that are noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from osbert.models.architecture import Architecture
from osbert_lab.analysis.advance import Advance
from osbert_lab.analysis.kinds.contract import PlacedTree, TextPass, TokenMarks
from osbert_lab.analysis.kinds.structure import LEAST, LINE, Structure
from osbert_lab.analysis.probing import CONTROL, EMBEDDINGS, UNIFORM
from osbert_lab.analysis.tree_files import Tree

SIZES = Architecture(layers=1, heads=2, width=8, vocabulary=20, length=24)
NOWHERE = np.zeros(8, bool)
MARKS = TokenMarks(first=NOWHERE, separator=NOWHERE, punctuation=NOWHERE)


def added(analysis: Structure, number: int) -> None:
    """Add a tree of six words; in layer 1 each arc is an axis, below is noise. The last word is punctuation."""
    rng = np.random.default_rng(number)
    order = rng.permutation(5)
    heads = [-1, -1, -1, -1, -1, int(order[0])]
    for place, word in enumerate(order[1:], 1):
        heads[word] = int(order[rng.integers(place)])
    above = torch.zeros(8, 8)
    for word in range(6):
        up = word
        while heads[up] >= 0:
            above[word + 1, up] = 1
            up = heads[up]
    tree = Tree(
        words=tuple(f"w{rng.integers(9)}" for _ in range(6)),
        heads=tuple(heads),
        relations=("x",) * 6,
        tags=("X",) * 5 + ("PUNCT",),
        path=Path("x"),
        line=1,
    )
    noise = torch.from_numpy(rng.normal(size=(8, 8))).float()
    tokens = np.eye(8, dtype=np.float32)[1:7]
    placed = PlacedTree(tree=tree, tokens=tokens, part="select" if number % 2 else "score")
    analysis.add(TextPass(number=number, marks=MARKS, states=[noise, above], random_states=noise, tree=placed))


def test_states_that_are_a_tree_give_its_arcs_and_noise_does_not() -> None:
    analysis = Structure(SIZES, seed=0)
    for number in range(2 * LEAST):
        added(analysis, number)
    trained = Advance(count=10**9)
    figures = {(one.name, one.where.get("layer")): one for one in analysis.figures(trained)}
    assert trained.done == analysis.training > 0  # what was announced, although probes stop early
    assert figures["tree_arcs", 1].value == 1 and figures["tree_arcs", 1].n == 4 * LEAST
    assert figures["tree_arcs", 0].value < 0.6 and figures["tree_arcs", 1].baselines[LINE] < 0.6
    assert figures["tree_order", 1].value > 0.9 > 0.6 > figures["tree_order", 0].value
    control = figures["tree_arcs", 1].baselines[CONTROL]
    assert control < 0.8 and figures["tree_arcs_selectivity", 1].value == pytest.approx(1 - control)
    margin = 1.96 * np.sqrt(control * (1 - control) / (4 * LEAST))
    assert figures["tree_arcs_selectivity", 1].interval == pytest.approx(
        (1 - control - margin, 1 - control + margin), abs=1e-4
    )
    code = figures["tree_arcs_bits", 1]
    assert code.value < code.baselines[EMBEDDINGS] and code.value < code.baselines[CONTROL]
    assert code.baselines[UNIFORM] == pytest.approx(np.log2(5)) and code.n == 15 * LEAST
    assert figures["tree_arcs_centre", None].value > 0.55 and figures["tree_arcs_expected_layer", None].value == 1
    page = analysis.section([*figures.values()]).html()
    assert "From layer 1 a linear map finds 100.0%" in page


def test_too_few_trees_give_no_figure_and_no_more_are_kept_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("osbert_lab.analysis.kinds.structure.ROOM", 3 * 8 * 16 * 30)
    analysis = Structure(SIZES, seed=0)
    for number in range(100):
        added(analysis, number)
    assert [len(kept) for kept in analysis.trees.values()] == [20, 10] and analysis.figures() == []
