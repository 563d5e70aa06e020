"""What every task in tasks/ must do: pickle, lay out valid examples, learn, decode and score consistently."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
import torch

from osbert import components, recipe
from osbert.data.batch import collate
from osbert.data.pack import Packer
from osbert.evaluation.forward import outputs
from osbert.evaluation.score import predict, score
from osbert.models.heads import Learner
from osbert.models.transformer import Architecture
from osbert.tasks import Record, Task
from osbert.text.tokenizer import SPECIALS, Tokenizer

WORDS = ["good", "bad", "film", "a", "play", "##s", "long", "."]
PACKER = Packer(tokenizer=Tokenizer([*SPECIALS, *WORDS]), length=12)
TEXTS = ["good film", "a long bad play .", "plays", "film " * 30, "bad bad", "good a a"]


def fitted(name: str) -> tuple[Task, list[Record]]:
    """Return a task fitted on six records; a numeric task gets numbers, others labels they know."""
    task = components.find("tasks", name, base=Task)()
    known = getattr(task, "labels", ()) or ("no", "yes")
    labels = [0.5, 2.0, 1.0, 4.0, 3.0, 0.0] if getattr(task, "numbers", False) else [*known, *known, *known]
    records = [
        Record(number=place, texts=(text,), label=label) for place, (text, label) in enumerate(zip(TEXTS, labels))
    ]
    return task.fitted(records), records


def learner(task: Task) -> Learner:
    torch.manual_seed(0)
    backbone = Architecture(layers=2, heads=2, width=16, vocabulary=len(PACKER.tokenizer), length=12).build()
    return Learner(backbone, {task.name: task.head(backbone)})


@pytest.fixture(params=components.names("tasks"))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_task_pickles_and_goes_through_a_recipe(name: str) -> None:
    task, _ = fitted(name)
    assert task.name == name
    assert pickle.loads(pickle.dumps(task)) == task
    assert recipe.build(type(task), recipe.as_table(task), where="test") == task
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.length = 3  # type: ignore[misc]
    assert all(line.partition("  ")[2] for line in recipe.describe(type(task)).splitlines())


def test_examples_are_valid(name: str) -> None:
    task, records = fitted(name)
    for record in records:
        for example in task.encode(record, PACKER):
            n = len(example)
            assert 2 <= n <= PACKER.length
            assert len(example.segments) == len(example.words) == len(example.special) == n
            assert example.ids[0] == PACKER.tokenizer.cls and example.ids[-1] == PACKER.tokenizer.sep
            assert not (example.words & example.special).any()
            target = example.targets[task.name]
            assert target.index is None or (target.index < n).all()
            assert np.isfinite(target.labels.astype(np.float64)).all()
    assert sum(example.truncated for example in task.encode(records[3], PACKER)) > 0
    unlabelled = dataclasses.replace(records[0], label=None)
    assert not any(example.targets for example in task.encode(unlabelled, PACKER))


def test_the_head_learns(name: str) -> None:
    task, records = fitted(name)
    model = learner(task)
    loss = model(collate([example for record in records for example in task.encode(record, PACKER)]))[task.name]
    assert torch.isfinite(loss.total) and loss.count > 0
    loss.total.backward()
    gradients = [weight.grad for weight in model.heads.parameters()]
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)
    assert any(gradient.abs().sum() > 0 for gradient in gradients if gradient is not None)


def test_predictions_do_not_depend_on_labels_order_or_batches(name: str) -> None:
    task, records = fitted(name)
    model = learner(task)
    whole = predict(model, task, records, PACKER)
    small = predict(model, task, [dataclasses.replace(record, label=None) for record in records], PACKER, tokens=1)
    backwards = predict(model, task, records[::-1], PACKER)[::-1]
    for others in (small, backwards):
        for one, other in zip(whole, others, strict=True):
            assert other.truncated == one.truncated
            assert other.value == one.value if isinstance(one.value, str) else True
            assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)
    assert whole[3].truncated > 0 and whole[0].truncated == 0
    assert model.training


def test_true_labels_score_best(name: str) -> None:
    task, records = fitted(name)
    predictions = predict(learner(task), task, records, PACKER)
    perfect = [dataclasses.replace(one, value=record.label) for one, record in zip(predictions, records)]
    scores = task.metrics(perfect, records)
    assert scores[task.criterion] == pytest.approx(1)
    result = score(learner(task), task, records, PACKER)
    assert set(result.metrics) == set(scores) and result.metrics[task.criterion] <= 1
    assert all(isinstance(value, float) for value in scores.values())


def test_outputs_are_the_head_without_dropout(name: str) -> None:
    task, records = fitted(name)
    model = learner(task)
    examples = [example for record in records for example in task.encode(record, PACKER)]
    first, second = outputs(model, task.name, examples), outputs(model, task.name, examples)
    assert all((one == other).all() for one, other in zip(first, second, strict=True))
