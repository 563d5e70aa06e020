"""Part of speech by layer: states that hold the tag, and states that hold the word alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from osbert.models.architecture import Architecture
from osbert_lab.analysis.advance import Advance
from osbert_lab.analysis.kinds.contract import PlacedTree, TextPass, TokenMarks
from osbert_lab.analysis.kinds.tags import Tags
from osbert_lab.analysis.probing import CONTROL, EMBEDDINGS, FREQUENT, LEAST, RANDOM, UNIFORM
from osbert_lab.analysis.tree_files import Tree

SIZES = Architecture(layers=1, heads=2, width=16, vocabulary=20, length=24)
NOWHERE = np.zeros(7, bool)
MARKS = TokenMarks(first=NOWHERE, separator=NOWHERE, punctuation=NOWHERE)
TAGS = ("NOUN", "VERB")


def added(analysis: Tags, number: int, *, one: bool = False) -> None:
    """Add a tree of five words out of 40, nouns and verbs at random; the embeddings hold the word, layer 1 the tag."""
    rng = np.random.default_rng(number)
    words = rng.integers(0, 40, 5)
    tags = rng.integers(0, 1 if one else 2, 5)
    tree = Tree(
        words=tuple(f"W{word}" for word in words), heads=(-1, 0, 0, 0, 0), relations=("x",) * 5,
        tags=tuple(TAGS[tag] for tag in tags), path=Path("x"), line=1,
    )  # fmt: skip
    tokens = np.zeros((5, 7), np.float32)
    tokens[np.arange(5), np.arange(5) + 1] = 1
    below, above = torch.zeros(7, 40), torch.zeros(7, 40)
    below[torch.arange(1, 6), torch.from_numpy(words)] = 1
    above[torch.arange(1, 6), torch.from_numpy(tags)] = 1
    part = "select" if number % 2 else "score"
    placed = PlacedTree(tree=tree, tokens=tokens, part=part)  # type: ignore[arg-type]
    analysis.add(
        TextPass(number=number, marks=MARKS, states=[below, above], random_states=torch.zeros(7, 40), tree=placed)
    )


def test_a_tag_is_found_where_it_is_and_words_are_learnt_by_heart() -> None:
    analysis = Tags(SIZES, seed=0)
    for number in range(160):
        added(analysis, number)
    trained = Advance(count=10**9)
    figures = analysis.figures(trained)
    assert trained.done == analysis.training > 0
    embeddings, layer = [one for one in figures if one.name == "tags"]
    assert layer.value == 1 and layer.n == 400 and layer.interval is not None and layer.interval[0] > 0.98
    assert embeddings.value == pytest.approx(0.5, abs=0.1) and embeddings.baselines[CONTROL] > 0.9
    assert layer.baselines[CONTROL] < 0.75 and layer.baselines[FREQUENT] == pytest.approx(0.5, abs=0.1)
    assert layer.baselines[RANDOM] < 0.7 and layer.baselines[Tags.clue] == pytest.approx(0.5, abs=0.1)
    selective = [found for found in figures if found.name == "tags_selectivity"]
    one, other = [found.value for found in selective]
    assert other == pytest.approx(layer.value - layer.baselines[CONTROL])
    assert selective[1].interval is not None and 0 < selective[1].interval[0] < other < selective[1].interval[1] < 1
    assert one < 0 < other and "layer 1" in analysis.section(figures).html()


def test_the_code_of_a_tag_is_short_where_it_is_and_a_mix_looks_there() -> None:
    analysis = Tags(SIZES, seed=0)
    for number in range(160):
        added(analysis, number)
    figures = {(one.name, one.where.get("layer")): one for one in analysis.figures()}
    below, above = figures["tags_bits", 0], figures["tags_bits", 1]
    assert above.value < 0.3 < 0.8 < below.value and above.baselines[UNIFORM] == 1 and above.n == 400
    assert below.baselines[CONTROL] < below.value and above.baselines[EMBEDDINGS] == below.value
    assert figures["tags_centre", None].value > 0.9 and figures["tags_expected_layer", None].value == 1


@pytest.mark.parametrize(("trees", "one"), [(LEAST // 5 - 1, False), (160, True)])
def test_too_few_words_and_one_tag_alone_give_no_figure(trees: int, one: bool) -> None:
    analysis = Tags(SIZES, seed=0)
    for number in range(trees):
        added(analysis, number, one=one)
    assert analysis.figures() == []


def test_no_more_words_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert_lab.analysis.probing.ROOM", 48 * 30)
    analysis = Tags(SIZES, seed=0)
    for number in range(30):
        added(analysis, number)
    assert [len(one.items) for one in analysis.drawn.values()] == [20, 10]
