"""The same text twice: the loss against a plain one, what dropout does, and other objectives beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from osbert.data.batch import Batch, collate
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.contrastive import twice
from osbert.objectives.mlm import MaskedLanguage
from osbert.objectives.same_text import SameText
from osbert.text.document import Document

OBJECTIVES = {"mlm": MaskedLanguage(), "same_text": SameText(temperature=0.2)}


@pytest.fixture(scope="module")
def batch(packer: Packer, text: list[Document]) -> Batch:
    examples = Examples.of([*packer.spans(text, np.random.default_rng(0))][:12])
    for number, objective in enumerate(OBJECTIVES.values()):
        examples = objective.corrupt_all(examples, packer, Noise.at(number, np.arange(len(examples))))
    return collate(examples)


@pytest.fixture(scope="module")
def learner(packer: Packer) -> Learner:
    torch.manual_seed(0)
    sizes = Architecture(layers=2, heads=2, width=16, vocabulary=len(packer.tokenizer), length=64, deviation=0.2)
    backbone = sizes.build()
    return Learner(backbone, {name: objective.head(backbone) for name, objective in OBJECTIVES.items()})


def test_without_dropout_the_loss_is_how_near_other_texts_come(learner: Learner, batch: Batch) -> None:
    learner.eval()
    with torch.no_grad():
        loss = learner(batch)["same_text"]
        states = learner.backbone(batch).hidden.split(list(batch.lengths))
        outputs = learner.heads["same_text"].outputs(learner.states(twice(batch)), twice(batch))
    vectors = functional.normalize(torch.stack([part.mean(dim=0) for part in states]), dim=-1)
    expected = -(vectors @ vectors.T / 0.2).log_softmax(dim=-1).diagonal().sum()
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(functional.normalize(outputs, dim=-1), vectors)
    assert loss.count == 12 and loss.hits == 12


def test_dropout_tells_the_two_readings_apart(learner: Learner, batch: Batch) -> None:
    learner.eval()
    calm = learner(batch)["same_text"].total
    learner.train()
    losses = [learner(batch)["same_text"].total for _ in range(2)]
    assert len({loss.item() for loss in (calm, *losses)}) == 3
    losses[0].backward()
    assert all(weight.grad.abs().sum() > 0 for weight in learner.backbone.blocks.parameters() if weight.ndim == 2)


def test_other_objectives_learn_from_the_first_reading_alone(learner: Learner, batch: Batch) -> None:
    alone = Learner(learner.backbone, {"mlm": learner.heads["mlm"]})
    learner.eval()
    with torch.no_grad():
        torch.testing.assert_close(learner(batch)["mlm"].total, alone(batch)["mlm"].total)


def test_it_objects_to_an_encoder_without_dropout_and_to_no_temperature(learner: Learner) -> None:
    sizes = learner.backbone.architecture
    assert not list(SameText().objections(sizes))
    assert list(SameText().objections(replace(sizes, dropout=0.0, attention_dropout=0.0)))
    with pytest.raises(ValueError, match="temperature"):
        SameText(temperature=0.0)
