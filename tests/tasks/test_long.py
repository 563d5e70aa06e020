"""--long: a record's windows share its weight and are averaged, what is cut is told, and what may not be is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from osbert import components
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.evaluation.forward import outputs
from osbert.evaluation.score import predict, refuse_long
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.tasks import Record, Task
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.tables import note_long
from refusals import refusal

LONG = "good film a play . " * 8  # 40 pieces; 6 fit beside [CLS] and [SEP]
RECORDS = [
    Record(number=0, texts=("good film",), label="yes"),
    Record(number=1, texts=(LONG,), label="no", path="reviews.csv", line=7),
]


def test_windows_share_the_weight_of_their_record(packer: Packer) -> None:
    task = Classify(labels=("no", "yes"), weights=(3.0, 1.0), long="window", overlap=2)
    short, long = (task.encode(record, packer) for record in RECORDS)
    assert len(short) == 1 and len(long) == 10
    assert sum(float(one.targets["classify"].weights[0]) for one in long) == pytest.approx(3.0)
    assert {int(one.targets["classify"].labels[0]) for one in long} == {0}
    plain = Classify(labels=("no", "yes"), long="window")
    assert plain.encode(RECORDS[0], packer)[0].targets["classify"].weights is None
    assert sum(one.truncated for one in long) == 0
    number = Regress(long="window", overlap=2).encode(Record(number=0, texts=(LONG,), label=2.0), packer)
    assert sum(float(one.targets["regress"].weights[0]) for one in number) == pytest.approx(1.0)


def learner(task: Task, packer: Packer) -> Learner:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=16, vocabulary=len(packer.tokenizer), length=8).build()
    return Learner(backbone, {task.name: task.head(backbone)})


@pytest.mark.parametrize("name", ["classify", "regress"])
def test_the_scores_of_windows_are_averaged(name: str, packer: Packer) -> None:
    settings: dict[str, Any] = {"labels": ("no", "yes")} if name == "classify" else {"center": 2.0, "scale": 3.0}
    task: Any = components.find("tasks", name, base=Task)(long="window", overlap=1, **settings)
    model = learner(task, packer)
    (said,) = predict(model, task, RECORDS[1:], packer)
    mean = np.mean(outputs(model, name, task.encode(replace(RECORDS[1], label=None), packer)), axis=0)
    assert said.truncated == 0
    if name == "regress":
        assert said.value == pytest.approx(2 + 3 * float(mean[0]), rel=1e-5)
        return
    assert list(said.probabilities.values()) == pytest.approx((np.exp(mean) / np.exp(mean).sum()).tolist(), rel=1e-5)


def test_error_names_every_text_that_does_not_fit_before_anything_is_computed(packer: Packer) -> None:
    task = Classify(labels=("no", "yes"), long="error")
    rows = [*RECORDS, Record(number=2, texts=("a",) * 2, label="no"), Record(number=3, texts=(LONG, "a"), label="no")]
    with refusal("text-too-long", "reviews.csv, line 7: 34", "8", "--long", "record 3: 36") as error:
        refuse_long(task, rows, packer)
    assert len(str(error.value).splitlines()[1:]) == 2
    problems = Problems(heading="")
    note_long(Classify(labels=("no", "yes")), rows, packer, problems)
    assert problems.count == 0


def test_where_pieces_are_not_read_is_said() -> None:
    assert (
        Classify().description.unread == "at the end"
        and Classify(long="head+tail").description.unread == "in the middle"
    )
    with pytest.raises(ValueError, match="overlap must be 0 or more"):
        Classify(overlap=-1)


def test_a_text_of_a_hundred_thousand_words_is_read_whole(packer: Packer) -> None:
    record = Record(number=0, texts=("good film " * 50_000,), label="yes")
    for long, count, truncated in (("truncate", 1, 99_994), ("head+tail", 1, 99_994), ("window", 33_333, 0)):
        examples = Classify(labels=("no", "yes"), long=long, overlap=3).encode(record, packer)
        assert (len(examples), sum(one.truncated for one in examples)) == (count, truncated)
