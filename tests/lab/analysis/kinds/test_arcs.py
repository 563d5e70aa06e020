"""Relations by layer: both words of an arc are given to the probe, and roots and punctuation are no items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from osbert.models.architecture import Architecture
from osbert_lab.analysis.kinds.arcs import Arcs
from osbert_lab.analysis.kinds.contract import PlacedTree, TextPass, TokenMarks
from osbert_lab.analysis.probing import CONTROL, RANDOM
from osbert_lab.analysis.tree_files import Tree

SIZES = Architecture(layers=1, heads=2, width=16, vocabulary=20, length=24)
NOWHERE = np.zeros(6, bool)
MARKS = TokenMarks(first=NOWHERE, separator=NOWHERE, punctuation=NOWHERE)
NAMES = np.array([["obj", "det"], ["det", "amod"]])


def passed(number: int) -> TextPass:
    """Return a tree of four words, a root, two dependents and a full stop.

    In layer 1 each word has a bit, and the relation is that of the dependent's bit and the head's; below is noise.
    """
    rng = np.random.default_rng(number)
    bits = rng.integers(0, 2, 4)
    relations = ("root", *(str(NAMES[bits[word], bits[0]]) for word in (1, 2)), "punct")
    words = tuple(f"w{rng.integers(30)}" for _ in range(4))
    tree = Tree(words=words, heads=(-1, 0, 0, 0), relations=relations, tags=("X",) * 4, path=Path("x"), line=1)
    above = torch.zeros(6, 2)
    above[torch.arange(1, 5), torch.from_numpy(bits)] = 1
    noise = torch.from_numpy(rng.normal(size=(6, 2))).float()
    tokens = np.eye(6, dtype=np.float32)[1:5]
    placed = PlacedTree(tree=tree, tokens=tokens, part="select" if number % 2 else "score")
    return TextPass(number=number, marks=MARKS, states=[noise, above], random_states=noise, tree=placed)


def test_the_relation_of_two_words_is_read_from_both() -> None:
    analysis = Arcs(SIZES, seed=0)
    for number in range(500):
        analysis.add(passed(number))
    items = [item for drawn in analysis.drawn.values() for item in drawn.items]
    assert len(items) == 1000 and {item.label for item in items} == {"obj", "det", "amod"}
    assert items[0].states.shape == (3, 2, 2) and items[0].clue == "X X -1"
    figures = analysis.figures()
    below, found = [one for one in figures if one.name == "arcs"]
    assert found.value == 1 and found.n == 500 and below.value < 0.65  # the most frequent one is half of them
    assert found.baselines[RANDOM] < 0.65 and found.baselines[CONTROL] < 0.7
    assert "the relation of two words" in analysis.section(figures).html()
