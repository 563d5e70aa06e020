"""Scores are the task's metrics on predictions in the records' order; records of several sequences stay together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.evaluation.score import predict, score
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import SequenceHead
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.kinds.classify import Classify
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

PACKER = Packer(tokenizer=Tokenizer([*SPECIALS, "good", "bad", "film"]), length=8)


@pytest.fixture(scope="module")
def learner() -> Learner:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=8, vocabulary=8, length=8).build()
    heads = {name: SequenceHead(backbone, target=name, labels=2) for name in ("classify", "test_score")}
    return Learner(backbone, heads)


def records(count: int) -> list[Record]:
    return [
        Record(number=n, texts=("good " * (n % 9 + 1) + ("bad" if n % 3 else "film"),), label="ab"[n % 2])
        for n in range(count)
    ]


def test_a_score_is_the_metrics_of_the_predictions(learner: Learner) -> None:
    task, rows = Classify(labels=("a", "b")), records(20)
    result = score(learner, task, rows, PACKER)
    assert result.predictions == predict(learner, task, rows, PACKER)
    assert result.metrics == task.metrics(result.predictions, rows)
    assert [one.truncated for one in result.predictions] == [max(0, n % 9 + 2 - 6) for n in range(20)]


def test_a_record_without_a_label_cannot_be_scored(learner: Learner) -> None:
    rows = [*records(2), replace(records(1)[0], label=None, path="new.csv", line=4)]
    with refusal("missing-label", "new.csv", "4"):
        score(learner, Classify(labels=("a", "b")), rows, PACKER)


@dataclass(frozen=True, kw_only=True)
class Parts(Task):
    """Records of several sequences, one a text: the prediction is their scores in order."""

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        ids = [packer.tokenizer.encode(text) for text in record.texts]
        return [packer.single(one, np.ones(len(one), np.bool_), record=record.number) for one in ids]

    def decode(self, outputs: Sequence[np.ndarray], record: Record, examples: Sequence[Example]) -> Prediction:
        return Prediction(value=[row.tolist() for row in outputs])

    @property
    def name(self) -> str:
        return "test_score"


def test_sequences_of_a_record_stay_together_and_in_order(learner: Learner) -> None:
    rows = [
        Record(number=0, texts=("good", "bad film " * 9, "film")),
        Record(number=1, texts=("bad",)),
        Record(number=2, texts=("film", "good")),
    ]
    said = predict(learner, Parts(), rows, PACKER, tokens=9)
    assert [len(one.value) for one in said] == [3, 1, 2]
    assert said[0].value[0] == pytest.approx(said[2].value[1], abs=1e-6)
    assert said[0].value[2] == pytest.approx(said[2].value[0], abs=1e-6)
    assert [one.truncated for one in said] == [12, 0, 0]
