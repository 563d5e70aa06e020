"""POST /v1/predict with labels: classes by name, of models of entailment, sentences and masks."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.server.calls.models import ModelFolder
from osbert.server.calls.predict import PredictRequest
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker
from osbert.tasks.kinds.classify import Classify
from tiny_runs import write_run

TEXTS = ["a good film", "the bad play"]


@pytest.fixture(scope="module")
def folders(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    task = Classify(labels=("entailment", "neutral", "contradiction"), text="one", pair="two")
    nli = write_run(tmp_path_factory.mktemp("nli") / "nli", task)
    two = write_run(tmp_path_factory.mktemp("two") / "two", replace(task, labels=("entailment", "neutral", "maybe")))
    encoders = {"masks": runs["pretrained"], "encoder": runs["encoder"]}
    return {**encoders, "classifier": runs["classifier"], "nli": nli, "two": two}


@pytest.fixture(scope="module")
def worker(folders: dict[str, Path]) -> Worker:
    return Worker(Orders(runs=[ModelFolder(name, folder) for name, folder in folders.items()], device="cpu"))


def ask(worker: Worker, *requests: dict[str, Any]) -> list[Any]:
    now = time.monotonic()
    given = [Dispatch(index, "predict", PredictRequest(**request).model_dump(), now, now + 60)
             for index, request in enumerate(requests)]  # fmt: skip
    answers = worker.take_in(given)
    while len(answers) < len(given):
        answers += worker.work().answers
    ordered = sorted(answers, key=lambda answer: answer.number)
    return [(answer.status, json.loads(answer.body)) for answer in ordered]


def test_answers_are_those_of_predict(worker: Worker, folders: dict[str, Path]) -> None:
    requests: list[dict[str, Any]] = [
        {"model": "masks", "texts": TEXTS, "labels": ["film", "play"]},
        {"model": "nli", "texts": TEXTS, "labels": {"good": "a good film", "bad": "bad"}, "multi": True},
        {"model": "nli", "texts": TEXTS[:1], "labels": ["good", "film"]},
        {"texts": TEXTS},
    ]
    answers = ask(worker, *requests)
    assert [status for status, _ in answers] == [200] * 4 and answers[3][1]["model"] == "classifier"
    for (_, answer), request in zip(answers, requests[:3]):
        model = osbert.load(folders[request["model"]])
        expected = model.predict(request["texts"], labels=request["labels"], multi=request.get("multi", False))
        for row, prediction in zip(answer["predictions"], expected, strict=True):
            assert row["probabilities"] == pytest.approx(dict(prediction.probabilities), abs=1e-5)
            assert row["labels" if request.get("multi") else "label"] in (prediction.value, [*prediction.value])


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"model": "masks", "texts": TEXTS}, "labels"),
        ({"model": "classifier", "texts": TEXTS, "labels": ["a", "b"]}, "labels"),
        ({"model": "encoder", "texts": TEXTS, "labels": ["a", "b"]}, "model"),
        ({"model": "nli", "texts": TEXTS, "labels": ["a", "a"]}, "labels"),
        ({"model": "nli", "texts": ["good " * 40], "labels": ["a", "film"]}, "texts[0]"),
        ({"model": "nli", "texts": [" "], "labels": ["a", "film"]}, "texts[0]"),
        ({"model": "nli", "texts": [["a", "film"]], "labels": ["a", "film"]}, "texts[0]"),
        ({"model": "nli", "texts": TEXTS, "multi": True}, "multi"),
        ({"model": "masks", "texts": TEXTS, "labels": ["film", "play"], "multi": True}, "multi"),
        ({"model": "masks", "texts": TEXTS, "labels": ["film"], "multi": True}, "labels"),
        ({"model": "nli", "records": [{"text": "a"}], "labels": ["a", "film"]}, "texts"),
    ],
)
def test_what_cannot_be_predicted_is_refused(worker: Worker, request_: dict[str, Any], field: str) -> None:
    [(status, answer)] = ask(worker, request_)
    assert status == 422 and answer["error"]["field"] == field
    assert "/tmp" not in answer["error"]["message"]


def test_no_refusal_speaks_of_an_option_of_the_command_line(worker: Worker) -> None:
    for model, labels, multi in (
        ("nli", ["film"], False),
        ("masks", ["film"], False),
        ("masks", ["film", "play"], True),
        ("two", ["film", "play"], True),
    ):
        [(status, answer)] = ask(worker, {"model": model, "texts": TEXTS, "labels": labels, "multi": multi})
        assert status == 422 and "--" not in answer["error"]["message"]


def test_too_much_at_once_is_refused(worker: Worker) -> None:
    [(status, answer)] = ask(worker, {"model": "nli", "texts": TEXTS * 10, "labels": [f"a{i}" for i in range(1500)]})
    assert status == 413 and answer["error"]["field"] == "labels"
