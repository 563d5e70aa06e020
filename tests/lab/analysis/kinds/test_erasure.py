"""What erasing part of speech costs: states of words lose it, those of other tokens stay, and the loss is as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from osbert.data.example import Example
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert_lab.analysis.kinds.contract import PlacedTree
from osbert_lab.analysis.kinds.erasure import BEFORE, NOTHING, RANDOM, Erasure, _batches, _losses, _mask_trees, _moments
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.probe import LinearProbe
from osbert_lab.analysis.sample import TextSample
from osbert_lab.analysis.tree_files import Tree

MASK = 4
TAGS = ("NOUN", "VERB")
SPEECH = {"part of speech": TAGS}


@pytest.fixture(scope="module")
def model() -> AnalysedModel:
    torch.manual_seed(0)
    backbone = Architecture(layers=2, heads=2, width=16, vocabulary=25, length=12, deviation=0.5).build().eval()
    assert backbone.embedding is not None
    with torch.no_grad():
        backbone.embedding.weight[5::2, :4] += 3
    packer = cast(Any, SimpleNamespace(tokenizer=SimpleNamespace(mask=MASK)))
    masks = MaskedLanguageHead(backbone).eval()
    return AnalysedModel(
        learner=Learner(backbone, {}).eval(), packer=packer, signs=np.zeros(25, bool), seed=0, masks=masks, task=None
    )


def sample(count: int) -> TextSample:
    """Sentences of seven words, each a piece, whose tag is whether the piece is even."""
    rng = np.random.default_rng(0)
    examples, trees = [], []
    for number in range(count):
        ids = np.array([1, *rng.integers(5, 25, 7), 2], np.int32)
        special = np.isin(ids, (1, 2))
        examples.append(Example(ids=ids, segments=np.zeros(9, np.int8), words=~special, special=special))
        tags = tuple(TAGS[piece % 2] for piece in ids[1:-1].tolist())
        tree = Tree(words=("w",) * 7, heads=(-1, *[0] * 6), relations=("x",) * 7, tags=tags, path=Path("x"), line=1)
        tokens = np.eye(9, dtype=np.float32)[1:8]
        trees.append(PlacedTree(tree=tree, tokens=tokens, part="select" if number % 2 else "score"))
    return TextSample(examples=examples, trees=trees, read=count)


def test_words_lose_the_tag_in_a_layer_and_other_tokens_lose_nothing(model: AnalysedModel) -> None:
    trees = _mask_trees(model, sample(60), "select", SPEECH)
    eraser = _moments(model, trees, SPEECH, lambda _: None)["part of speech"][1].eraser()
    [(batch, labels)] = _batches(trees)
    tags = labels["part of speech"]
    with torch.no_grad():
        states = list(model.backbone.layers(batch))[1]
    words = tags != NOTHING
    gold = tags[words].numpy()
    there, gone = states[words].numpy(), eraser.apply(states)[words].numpy()
    found = [LinearProbe(one, gold, 2, strength=1e-3) for one in (there, gone)]
    right = [float((probe.predict(one) == gold).mean()) for probe, one in zip(found, (there, gone), strict=True)]
    majority = max(np.bincount(gold)) / len(gold)
    assert right[0] > 0.8 and right[1] == pytest.approx(majority, abs=0.01)
    assert int((~words).sum()) == 2 * len(trees) and eraser.rank == 1


def test_the_cost_is_against_the_loss_before_and_random_directions(model: AnalysedModel) -> None:
    given, read = sample(420), []
    figures = Erasure().measure(model, given, read.append)
    before = _losses(model, _mask_trees(model, given, "score", SPEECH), None, lambda _: None)
    assert [one.where for one in figures] == [
        {"label": "part of speech", "layer": layer, "directions": 1} for layer in range(3)
    ]  # there is one relation alone
    for one in figures:
        assert one.n == len(before) == 210 and one.baselines[BEFORE] == pytest.approx(before.mean())
        assert one.interval is not None and one.interval[0] < one.value < one.interval[1]
    assert any(abs(one.value - one.baselines[RANDOM]) > 1e-4 for one in figures) and sum(read) == 210 * 9 * 8
    assert "nats more" in Erasure.section(figures).html()
    related = [replace(one, tree=replace(one.tree, tags=("_",) * 7, relations=one.tree.tags)) for one in given.trees]
    others = Erasure().measure(model, replace(given, trees=related), read.append)
    assert [one.value for one in others] == [one.value for one in figures]
    assert {one.where["label"] for one in others} == {"relation to the head"}
    assert Erasure.section([*figures, *others]).html().count("nats more") == 2


def test_a_model_that_predicts_no_pieces_and_too_few_pieces_have_no_figure(model: AnalysedModel) -> None:
    assert Erasure.obstacle(replace(model, masks=None)) and not Erasure.obstacle(model)
    assert Erasure().measure(model, sample(40), lambda _: None) == []
