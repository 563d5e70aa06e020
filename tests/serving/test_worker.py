"""A worker without its process: what it leaves alone, and what one broken request costs the others."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from osbert.serving.models import Run
from osbert.serving.wire import Asking, Dropping, Orders
from osbert.serving.worker import Worker


@pytest.fixture
def worker(runs: dict[str, Path]) -> Worker:
    return Worker(Orders(runs=[Run("classifier", runs["classifier"])], device="cpu"))


def asking(number: int, *texts: str, seconds: float = 60.0) -> Asking:
    now = time.monotonic()
    return Asking(number, "embed", {"texts": texts, "pooling": "mean", "normalise": False}, now, now + seconds)


def test_what_nobody_waits_for_is_not_even_cut_into_pieces(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[str] = []
    examples = worker.models["classifier"].engine.examples

    def noting(texts: Sequence[Any]) -> Any:
        cut.extend(texts)
        return examples(texts)

    monkeypatch.setattr(worker.models["classifier"].engine, "examples", noting)
    (late,) = worker.take_in([asking(1, "a"), asking(2, "film", seconds=0), asking(3, "good"), Dropping(1)])
    assert (late.number, late.status) == (2, 504) and cut == ["good"]
    assert [answer.number for answer in worker.work().answers] == [3]


def test_a_broken_request_costs_the_others_nothing(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    vectors = worker.models["classifier"].engine.vectors

    def breaking(examples: Sequence[Any], **settings: Any) -> Any:
        if any(len(example) == 4 for example in examples):
            raise RuntimeError("four tokens are too many")
        found = vectors(examples, **settings)
        found[[len(example) == 5 for example in examples]] = math.nan
        return found

    monkeypatch.setattr(worker.models["classifier"].engine, "vectors", breaking)
    assert worker.take_in([asking(1, "a"), asking(2, "good film"), asking(3, "film"), asking(4, "a good film")]) == []
    answers = {answer.number: answer for answer in worker.work().answers}
    assert {number: answer.status for number, answer in answers.items()} == {1: 200, 2: 500, 3: 200, 4: 500}
    assert "the server failed" in json.loads(answers[2].body)["error"]["message"].lower()
    assert "four tokens are too many" in capfd.readouterr().err
    assert not worker.queue.jobs
