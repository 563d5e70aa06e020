"""/v1/attention: what the library says of a text or a pair; what cannot be is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from osbert.server.call_table import CALLS
from osbert.server.calls import attention
from osbert.server.calls.models import ModelFolder
from osbert.server.calls.schemas import parse
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker


@pytest.fixture(scope="module")
def worker(runs: dict[str, Path]) -> Worker:
    return Worker(Orders(runs=[ModelFolder(name, runs[name]) for name in ("classifier", "pretrained")], device="cpu"))


def ask(worker: Worker, **fields: Any) -> tuple[int, dict[str, Any]]:
    asked = parse(CALLS["attention"].request, json.dumps(fields).encode()).model_dump()
    (answer,) = worker.take_in([Dispatch(1, "attention", asked, 0.0, math.inf)]) or worker.work().answers
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize("texts", [("the good film 😀",), ("a [MASK] film", "bad play.")])
@pytest.mark.parametrize("name", ["classifier", "pretrained"])
def test_the_server_says_what_the_library_says(worker: Worker, name: str, texts: tuple[str, ...]) -> None:
    status, said = ask(worker, model=name, **dict(zip(("text", "pair"), texts)))
    found = worker.models[name].engine.attention(*texts)
    assert status == 200, said
    assert said == json.loads(json.dumps({"model": name, "attention": {**found.record(), "name": name}}))


def test_what_cannot_be_shown_is_refused(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(worker, text=" ")[1]["error"]["field"] == "text"
    status, said = ask(worker, text="film " * 40)
    assert status == 422 and said["error"]["field"] == "text" and "24" in said["error"]["message"]
    monkeypatch.setattr(attention, "TOKENS", 4)
    status, said = ask(worker, text="the good film")
    assert status == 422 and "4" in said["error"]["message"] and "5" in said["error"]["message"]
    monkeypatch.setattr("osbert.models.families.transformer.Transformer.attends", False)
    assert ask(worker, text="a film", model="classifier")[0] == 422
