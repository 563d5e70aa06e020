"""Coreference by layer: states that say which thing a mention is, and states that are noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from osbert.models.architecture import Architecture
from osbert_lab.analysis.coreference_files import LinkedText, MentionLink
from osbert_lab.analysis.kinds.contract import PlacedWords, TextPass, TokenMarks
from osbert_lab.analysis.kinds.mentions import Mentions, _MentionProbes, _pairs
from osbert_lab.analysis.sample import LinkedItem

SIZES = Architecture(layers=1, heads=2, width=16, vocabulary=20, length=24)
NOWHERE = np.zeros(7, bool)
MARKS = TokenMarks(first=NOWHERE, separator=NOWHERE, punctuation=NOWHERE)


def test_the_nearest_right_and_the_nearest_wrong_mention_are_the_pairs() -> None:
    link = MentionLink(mention=5, candidates=(0, 1, 3, 4), right=frozenset({0, 1}), kind="names")
    assert [*_pairs(link)] == [(1, "one thing"), (4, "two things")]
    assert [*_pairs(MentionLink(mention=2, candidates=(1,), right=frozenset({1}), kind="names"))] == [(1, "one thing")]


def test_a_probe_of_pairs_reads_what_says_which_thing_a_mention_is() -> None:
    """Five mentions of six axes; in layer 1 a mention's state is its thing's axis, below it is noise."""
    rng = np.random.default_rng(0)
    linked, passes = [], []
    for number in range(600):
        things = rng.integers(0, 6, 5)
        right = frozenset(np.flatnonzero(things[:4] == things[4]).tolist())
        link = MentionLink(mention=4, candidates=(0, 1, 2, 3), right=right, kind="nouns")
        text = LinkedText(words=("a", "b", "c", "d", "e"), links=(link,), path=Path("x"), line=1)
        linked.append(LinkedItem(text=text, part="select" if number % 2 else "score"))
        above = torch.zeros(7, 6)
        above[torch.arange(1, 6), torch.from_numpy(things)] = 1
        noise = torch.from_numpy(rng.normal(size=(7, 6))).float()
        placed = PlacedWords(words=text.words, labels=(), tokens=np.eye(7, dtype=np.float32)[1:6], part=linked[-1].part)
        passes.append(TextPass(number=number, marks=MARKS, states=[noise, above], random_states=noise, labelled=placed))
    probes = _MentionProbes(SIZES, 0, linked)
    for one in passes:
        probes.add(one)
    figures = probes.figures()
    below, found = [one for one in figures if one.name == "mentions"]
    assert found.value == 1 and found.n > 300
    assert below.value < 0.75 and below.baselines["most frequent label"] > 0.5
    assert "Where coreference of two mentions can be read" in Mentions.section(figures).html()
