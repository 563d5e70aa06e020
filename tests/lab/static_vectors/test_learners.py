"""Vectors of words that are learnt from a mixture: each part in its share."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import corpora
from osbert.corpus.shards import Corpus
from osbert_lab.static_vectors.learners import GloveLearner, Word2VecLearner
from osbert_lab.static_vectors.settings import GloveSettings, Word2VecSettings


@pytest.fixture
def mixed(tmp_path: Path) -> Corpus:
    return corpora.cats_and_dogs(tmp_path)


def test_vectors_read_a_mixture_in_its_shares(mixed: Corpus, tmp_path: Path) -> None:
    learner = Word2VecLearner(corpus=mixed, specials=(), folder=tmp_path, settings=Word2VecSettings())
    seen = Counter(block.shard < mixed.parts[0].shards for block in learner.blocks)
    tokens = {
        first: sum(mixed.size(block) for block in learner.blocks if (block.shard < mixed.parts[0].shards) == first)
        for first in seen
    }
    assert tokens[True] / sum(tokens.values()) == pytest.approx(0.75, abs=0.05)
    assert replace(learner).blocks == learner.blocks


def test_vectors_of_several_epochs_read_all_of_a_part_of_small_share(mixed: Corpus, tmp_path: Path) -> None:
    learner = Word2VecLearner(corpus=mixed, specials=(), folder=tmp_path, settings=Word2VecSettings())
    everything = {block for part in learner._mixture.blocks for block in part}
    assert {*learner.blocks_of(0)} < everything
    assert {block for epoch in range(4) for block in learner.blocks_of(epoch)} == everything


def test_without_a_budget_of_time_nothing_is_said_of_time(mixed: Corpus, tmp_path: Path) -> None:
    learner = GloveLearner(corpus=mixed, specials=(), folder=tmp_path, settings=GloveSettings())
    learner.blocks.pop()  # an epoch of a mixture may have fewer words than the corpus
    assert learner.prepare() == ""
