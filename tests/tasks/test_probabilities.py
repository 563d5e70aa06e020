"""The probabilities of many labels: as a dict holds them, at a size and with work that 10,000 labels bear."""

from __future__ import annotations

import csv
import io
import json
import pickle
import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.runs.rows.prediction_settings import PredictionColumns
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.calibration import at_temperature, columns
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.probabilities import LabelProbabilities, likeliest

MANY = 10_000
NAMES = tuple(f"class {number:05}" for number in range(MANY))
KINDS = [Classify(labels=NAMES, text="text"), Multilabel(labels=NAMES, text="text", thresholds=(0.99,) * MANY)]


def predict(task: Task, count: int, seed: int = 0) -> Prediction:
    scores = np.random.default_rng(seed).normal(size=count).astype(np.float32)
    return task.decode([scores], Record(number=0, texts=("a",)), [])


@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]), max_size=30), st.integers(0, 40))
def test_it_equals_a_dict(shares: list[float], count: int) -> None:
    names = {f"label {number}": number for number in range(len(shares))}
    expected = dict(zip(names, shares))
    probabilities = LabelProbabilities(names, np.array(shares, np.float64))
    assert isinstance(probabilities, Mapping) and probabilities == expected and {**probabilities} == expected
    assert list(probabilities) == list(expected) and len(probabilities) == len(expected)
    assert list(probabilities.values()) == list(expected.values())
    assert list(probabilities.items()) == list(expected.items())
    assert repr(probabilities) == repr(expected) and pickle.loads(pickle.dumps(probabilities)) == expected
    assert "no label" not in probabilities and probabilities.get("no label") is None
    ranked = sorted(expected.items(), key=lambda item: -item[1])
    assert probabilities.likeliest(count) == likeliest(expected, count) == ranked[:count]


@pytest.mark.parametrize("kind", [Classify, Multilabel])
def test_up_to_100_labels_all_are_written_and_answered(kind: type[Task]) -> None:
    names = NAMES[:100]
    task: Any = kind(labels=names, text="text")
    prediction = predict(task, 100)
    assert type(prediction.probabilities) is dict
    reply = task.reply(prediction)
    assert list(reply["probabilities"]) == list(names) and "left_out" not in reply
    cells = PredictionColumns().cells(task, prediction)
    assert list(cells) == ["prediction", *(f"probability of {name}" for name in names), "truncated"]
    assert list(PredictionColumns().fields(prediction)["probabilities"]) == list(names)
    one_more: Any = kind(labels=NAMES[:101], text="text")
    reply = one_more.reply(predict(one_more, 101))
    assert reply["left_out"] == 101 - len(reply["probabilities"]) > 0


@pytest.mark.parametrize("task", KINDS)
def test_predictions_of_many_labels_are_small_and_written_without_a_look_at_each(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dict of 10,000 labels takes 600 kB; a window has 4,096 predictions."""
    predict(task, MANY)
    tracemalloc.start()
    try:
        predictions = [predict(task, MANY, seed) for seed in range(20)]
        assert tracemalloc.get_traced_memory()[0] < 20 * 100_000
    finally:
        tracemalloc.stop()
    expected = [sorted(dict(one.probabilities).items(), key=lambda item: -item[1])[:10] for one in predictions]

    def fail(*_: object) -> Any:
        raise AssertionError("every label is looked at")

    for name in ("__getitem__", "__iter__", "items", "values"):
        monkeypatch.setattr(LabelProbabilities, name, fail)
    for prediction, ranked in zip(predictions, expected):
        cells = PredictionColumns().cells(task, prediction)
        assert len(cells) == 22 and [cells[f"top {number}"] for number in range(1, 11)] == [name for name, _ in ranked]
        fields = PredictionColumns().fields(prediction)
        assert [(one["value"], one["probability"]) for one in fields["top"]] == ranked and "probabilities" not in fields


@pytest.mark.parametrize("task", KINDS)
def test_with_all_probabilities_every_label_has_its_own(task: Any) -> None:
    prediction = predict(task, MANY)
    options = PredictionColumns(probabilities=True)
    cells, empty = options.cells(task, prediction), options.cells(task, None)
    assert list(cells) == list(empty) and len(cells) == MANY + 2 and set(empty.values()) == {""}
    line = io.StringIO()
    csv.writer(line).writerow(cells.values())
    assert line.getvalue().split(",")[-2] == f"{prediction.probabilities[NAMES[-1]]:.6f}"
    assert json.loads(json.dumps(options.fields(prediction)))["probabilities"] == prediction.probabilities


def test_an_answer_of_the_server_has_the_likeliest_and_counts_what_it_leaves_out() -> None:
    for task in KINDS:
        prediction = predict(task, MANY)
        reply = task.reply(prediction)
        assert len(reply["probabilities"]) + reply["left_out"] == MANY
        assert list(reply["probabilities"].items())[:10] == prediction.likeliest[:10]
        assert len(json.dumps(reply)) < 2_000
    labels: Any = Multilabel(labels=NAMES, text="text", thresholds=(0.0, *[0.99] * (MANY - 1)))
    prediction = predict(labels, MANY)
    assert prediction.value == NAMES[:1] and NAMES[0] in labels.reply(prediction)["probabilities"]


def test_calibration_keeps_the_array() -> None:
    task = KINDS[0]
    predictions = [predict(task, MANY, seed) for seed in range(3)]
    records = [Record(number=0, texts=("a",), label=NAMES[5])] * 3
    array, labels = columns(predictions, records) or pytest.fail("no probabilities")
    assert array.shape == (3, MANY) and labels.tolist() == [5] * 3
    cooler = at_temperature(predictions, 2.0)
    assert all(isinstance(one.probabilities, LabelProbabilities) for one in cooler)
    assert sum(cooler[0].probabilities.values()) == pytest.approx(1)
