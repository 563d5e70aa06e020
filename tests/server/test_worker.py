"""A worker without its process: what it leaves alone, and what one broken request costs the others."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osbert.inference.embedder import Embedder
from osbert.server import worker as module
from osbert.server.calls.models import ModelFolder
from osbert.server.wire import Cancellation, Dispatch, LoadFailure, Orders, PassStart, Wire
from osbert.server.worker import Worker


@pytest.fixture
def worker(runs: dict[str, Path]) -> Worker:
    return Worker(Orders(runs=[ModelFolder("classifier", runs["classifier"])], device="cpu"))


def asking(number: int, *texts: str, seconds: float = 60.0) -> Dispatch:
    now = time.monotonic()
    asked = {"texts": texts, "pooling": "mean", "normalise": False, "long": "truncate"}
    return Dispatch(number, "embed", asked, now, now + seconds)


def test_what_nobody_waits_for_is_not_even_cut_into_pieces(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[str] = []
    sequences = Embedder.sequences

    def noting(self: Embedder, texts: Sequence[str], record: int) -> Any:
        cut.extend(texts)
        return sequences(self, texts, record)

    monkeypatch.setattr(Embedder, "sequences", noting)
    (late,) = worker.take_in([asking(1, "a"), asking(2, "film", seconds=0), asking(3, "good"), Cancellation(1)])
    assert (late.number, late.status) == (2, 504) and cut == ["", "good"]  # "": what an Embedder is tried on
    assert [answer.number for answer in worker.work().answers] == [3]


def test_a_broken_request_costs_the_others_nothing(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = worker.models["classifier"].engine.backend
    vectors = backend.vectors

    def breaking(examples: Sequence[Any], **settings: Any) -> Any:
        if any(len(example) == 4 for example in examples):
            raise RuntimeError("four tokens are too many")
        found = vectors(examples, **settings)
        return [row * (math.nan if len(example) == 5 else 1) for row, example in zip(found, examples, strict=True)]

    monkeypatch.setattr(backend, "vectors", breaking)
    assert worker.take_in([asking(1, "a"), asking(2, "good film"), asking(3, "film"), asking(4, "a good film")]) == []
    answers = {answer.number: answer for answer in worker.work().answers}
    assert {number: answer.status for number, answer in answers.items()} == {1: 200, 2: 500, 3: 200, 4: 503}
    assert "model classifier failed" in json.loads(answers[2].body)["error"]["message"].lower()
    assert "four tokens are too many" in capfd.readouterr().err
    assert not worker.queue.jobs


def test_scores_that_are_no_numbers_are_never_answered(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = worker.models["classifier"].engine.backend
    monkeypatch.setattr(backend, "outputs", lambda task, examples, tokens: [np.array([math.inf, 0.0])] * len(examples))
    for number in (1, 2):
        assert worker.take_in([asking(number, "a")._replace(call="predict", request={"texts": ["a"]})]) == []
        (answer,) = worker.work().answers
        assert answer.status == 503 and "model classifier failed" in json.loads(answer.body)["error"]["message"]
    told = capfd.readouterr().err
    assert len(told.splitlines()) == 1
    assert str(worker.models["classifier"].engine.folder) in told and "Traceback" not in told


def test_a_pass_is_named_before_it_begins_and_what_is_to_be_alone_is(worker: Worker) -> None:
    told: list[PassStart] = []
    alone = asking(2, "film")._replace(alone=True)
    assert worker.take_in([asking(1, "a"), alone, asking(3, "good")]) == []
    while worker.queue.jobs:
        begun = len(told)
        answered = [one.number for one in worker.work(told.append).answers]
        assert [one.numbers for one in told[begun:]] == [answered]
    assert [one.numbers for one in told] == [[1, 3], [2]]


def test_a_model_that_cannot_be_loaded_is_named_with_the_code_of_its_error(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Wire(socket=ours).send(Orders(runs=[ModelFolder("empty", tmp_path)], device="cpu"))
        module.serve(Wire(socket=theirs))
        (failed,) = Wire(socket=ours).receive(0)
    assert (failed.model, failed.code) == ("empty", "not-a-model") and str(tmp_path) in failed.message


def test_whatever_keeps_the_models_from_loading_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaking(orders: Orders) -> Worker:
        raise IndexError("pop from empty list")

    monkeypatch.setattr(module, "Worker", breaking)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Wire(socket=ours).send(Orders(runs=[]))
        module.serve(Wire(socket=theirs))
        (told,) = Wire(socket=ours).receive(0)
    assert told == LoadFailure("The models cannot be loaded: IndexError('pop from empty list')")
    assert "Traceback" in capsys.readouterr().err
