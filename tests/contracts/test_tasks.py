"""What every task in tasks/ must do: pickle, lay out valid examples, learn, decode and score consistently."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pickle
import shlex
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from osbert import components, recipe
from osbert.data.batch import collate, halves, micro_batches
from osbert.data.pack import Packer
from osbert.evaluation.forward import outputs
from osbert.evaluation.score import predict, score
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.reading.tagged import schemes as tags
from osbert.tasks import Record, Task
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.kinds.rerank import Rerank
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.span.questions import Gold, Question
from osbert.tasks.kinds.tag import Tag
from osbert.tasks.kinds.tag.passages import EntityPrediction
from osbert.tasks.record import UNPAIRED
from osbert.text.tokenizer import SPECIALS, Tokenizer

WORDS = ["good", "bad", "film", "a", "play", "##s", "long", "."]
PACKER = Packer(tokenizer=Tokenizer([*SPECIALS, *WORDS]), length=12)
SIZES = Architecture(layers=2, heads=2, width=16, vocabulary=len(PACKER.tokenizer), length=12)
TEXTS = ["good film", "a long bad play .", "plays", "film " * 30, "bad bad", "good a a"]


def texts_and_labels(task: Task) -> list[Record]:
    """Return records with one label each; a numeric task gets numbers, others labels they know."""
    known = getattr(task, "labels", ()) or ("no", "yes")
    labels = [0.5, 2.0, 1.0, 4.0, 3.0, 0.0] if getattr(task, "numbers", False) else [*known, *known, *known]
    return [Record(number=place, texts=(text,), label=label) for place, (text, label) in enumerate(zip(TEXTS, labels))]


def several_labels(task: Task) -> list[Record]:
    """Return records with none, one or two labels."""
    sets = [("no",), ("no", "yes"), (), ("yes",), ("no",), ("no", "yes")]
    return [Record(number=place, texts=(text,), label=own) for place, (text, own) in enumerate(zip(TEXTS, sets))]


def questions(task: Task) -> list[Record]:
    """Return questions whose answers are the first words of their paragraphs."""
    labels = [(Gold(text.split()[0], 0),) for text in TEXTS]
    pairs = enumerate(zip(TEXTS, labels))
    return [Question(number=place, texts=("good a", text), label=label) for place, (text, label) in pairs]


def choices(task: Task) -> list[Record]:
    """Return contexts with two choices, or three."""
    rows = [(text, *("good", "bad film", "a")[: 2 + place % 2]) for place, text in enumerate(TEXTS)]
    pairs = enumerate(rows)
    return [dataclasses.replace(task.record_of(row), number=place, label=str(place % 2)) for place, row in pairs]


def candidates(task: Task) -> list[Record]:
    """Return queries with two candidates, or three, one of which is relevant."""
    found = []
    for place, text in enumerate(TEXTS):
        documents = ("good", "bad film", "a")[: 2 + place % 2]
        label = tuple(float(number == place % 2) for number in range(len(documents)))
        found.append(dataclasses.replace(task.record_of((text, *documents)), number=place, label=label))
    return found


def passages(task: Task) -> list[Record]:
    """Return texts whose first words are entities, of types that the task knows."""
    types = (getattr(task, "types", ()) or ("no", "yes")) * len(TEXTS)
    labels = [(tags.EntitySpan(0, 1, type_),) for type_ in types]
    pairs = enumerate(zip(TEXTS, labels))
    return [dataclasses.replace(task.record_of([text]), number=place, label=label) for place, (text, label) in pairs]


def written(task: Task) -> list[Record]:
    """Return records with a text to write, long enough for runs of four words, or with the data set's labels."""
    found = texts_and_labels(task)
    if task.classes:
        return [dataclasses.replace(one, label=label) for one, label in zip(found, task.classes * 3)]
    return [dataclasses.replace(one, label=("a good film .",)) for one in found]


MAKERS: dict[type[Task], Callable[[Task], list[Record]]] = {
    Span: questions,
    Rerank: candidates,
    Tag: passages,
    Multilabel: several_labels,
    Task: texts_and_labels,
}
"""How six records of a kind are made, the fourth far too long; the first kind that a task is of counts."""

if importlib.util.find_spec("osbert_lab"):
    from osbert_lab.multiple_choice.choose import Choose
    from osbert_lab.named_spans import NamedSpans
    from osbert_lab.writing.generate import Generate

    MAKERS = {Generate: written, NamedSpans: passages, Choose: choices, **MAKERS}


def fitted(name: str) -> tuple[Task, list[Record]]:
    """Return a task fitted on six records."""
    kind = components.find("tasks", name, base=Task)
    task = (
        kind(most=4) if name == "text_to_text" else kind()
    )  # what stands before its texts takes a part of twelve tokens
    records = next(make for kind, make in MAKERS.items() if isinstance(task, kind))(task)
    return task.fit(records).for_model(SIZES, PACKER.tokenizer), records


def right(record: Record) -> Any:
    """Return the value of a perfect prediction."""
    if isinstance(record, Question):
        return record.label[0].text
    return record.label[0] if record.label == ("a good film .",) else record.label


def learner(task: Task) -> Learner:
    torch.manual_seed(0)
    backbone = SIZES.build()
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
    assert all(document for *_, document in recipe.describe_settings(type(task)))


def test_the_sample_that_a_run_names_at_its_end_can_be_predicted(name: str) -> None:
    task, _ = fitted(name)
    assert task.record_of(shlex.split(task.sample)).texts


def test_examples_are_valid(name: str) -> None:
    task, records = fitted(name)
    for record in records:
        examples = task.encode(record, PACKER)
        assert any(task.name in example.targets for example in examples)
        assert {example.record for example in examples} == {record.number}
        for example in examples:
            n = len(example)
            assert 2 <= n <= PACKER.length
            assert len(example.segments) == len(example.words) == len(example.special) == n
            assert example.ids[0] == PACKER.tokenizer.cls and example.ids[-1] == PACKER.tokenizer.sep
            assert not (example.words & example.special).any()
            for target in example.targets.values():
                assert target.index is None or (target.index < n).all()
                assert np.isfinite(target.labels.astype(np.float64)).all()
    long = task.encode(records[3], PACKER)
    assert sum(example.truncated for example in long) > 0 or len(long) > len(task.encode(records[0], PACKER))
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
            assert type(other) is type(one) and other.truncated == one.truncated
            assert other.value == one.value if isinstance(one.value, str) else True
            assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)
    assert whole[0].truncated == 0
    assert model.training


def with_answer(prediction: Any, record: Any) -> Any:
    """Return the prediction with the record's true answer; a tagger's is compared by words, and shown by characters."""
    if isinstance(prediction, EntityPrediction):
        return dataclasses.replace(prediction, value=record.expected, words=record.label)
    return dataclasses.replace(prediction, value=right(record))


def test_true_labels_score_best(name: str) -> None:
    task, records = fitted(name)
    predictions = predict(learner(task), task, records, PACKER)
    perfect = [with_answer(prediction, record) for prediction, record in zip(predictions, records)]
    scores = task.metrics(perfect, records)
    assert scores[task.criterion] == pytest.approx(1)
    result = score(learner(task), task, records, PACKER)
    # Scores of single classes, "f1/NAME", are of those that the records or the predictions have.
    overall = {name for name in scores if "/" not in name}
    assert {name for name in result.metrics if "/" not in name} == overall and result.metrics[task.criterion] <= 1
    assert all(isinstance(value, float) for value in scores.values())


def test_outputs_are_the_head_without_dropout(name: str) -> None:
    task, records = fitted(name)
    model = learner(task)
    examples = [example for record in records for example in task.encode(record, PACKER)]
    first, second = (outputs(model, task.name, examples, per_token=task.per_token) for _ in range(2))
    assert all((one == other).all() for one, other in zip(first, second, strict=True))


def test_predictions_are_told_and_written(name: str) -> None:
    task, records = fitted(name)
    predictions = predict(learner(task), task, records, PACKER)
    for prediction in predictions:
        assert prediction.lines() and all(isinstance(line, str) for line in prediction.lines())
        plain = prediction.as_dict()
        assert next(iter(plain)) == "prediction" and json.loads(json.dumps(plain)) == plain
        assert list(task.cells(prediction)) == list(task.cells(None)) and "" not in task.cells(prediction).values()
    assert set(task.cells(None).values()) == {""}
    assert (
        task.description.describe_split(records)
        and len({len(row) for row in task.description.details(predictions, records)}) < 2
    )


def test_outcomes_are_what_predictions_and_labels_say(name: str) -> None:
    task, records = fitted(name)
    for prediction, record in zip(predict(learner(task), task, records, PACKER), records):
        found = task.outcome(prediction, record)
        assert found.error >= 0 and found.truth and found.guess
        assert found.right is None or found.right is (found.error < 1e-9) or "rank" in found.truth
        assert all(0 <= share <= 1 for share, _ in found.beliefs) and 0 <= (found.confidence or 0) <= 1
        assert all(0 <= mark.start < mark.end <= len(record.texts[mark.text]) for mark in found.marks)
        true = [label for label, _ in found.pairs if label != UNPAIRED]
        assert Counter(true) == Counter(task.names(record)) if found.pairs else not true


def test_a_tuned_task_is_one_of_its_kind_and_scores_no_worse(name: str) -> None:
    task, records = fitted(name)
    tuned, _ = task.tune(predict(learner(task), task, records, PACKER), records)
    assert type(tuned) is type(task) and recipe.build(type(tuned), recipe.as_table(tuned), where="test") == tuned
    before, after = (
        one.metrics(predict(learner(one), one, records, PACKER), records)[task.criterion] for one in (task, tuned)
    )
    assert after >= before - 1e-9


def test_records_that_belong_together_have_the_loss_of_one_batch(name: str) -> None:
    task, records = fitted(name)
    model = learner(task).eval()
    examples = [example for record in records for example in task.encode(record, PACKER)]
    if task.batching == "step":  # the loss compares records, so nothing may part them
        batch = dataclasses.replace(collate(examples), whole=True)
        assert halves(batch) == [batch]
        return
    whole = model(collate(examples))[task.name]
    parts = [model(batch).get(task.name) for batch in micro_batches(examples, 20, together=task.batching == "records")]
    assert len(parts) > 1
    assert sum(part.count for part in parts if part) == whole.count
    assert sum(part.total.item() for part in parts if part) == pytest.approx(whole.total.item(), rel=1e-4)


def test_a_kind_with_a_method_of_an_earlier_version_is_refused() -> None:
    """It would never be called, so that its predictions would be wrong without a word."""
    with pytest.raises(TypeError, match="classes_of"):
        type("Outdated", (Task,), {"classes_of": lambda self, record: ()})
