"""/v1/explain: what the library says, for each kind of model; what cannot be is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from osbert.server.call_table import CALLS
from osbert.server.calls.models import ModelFolder
from osbert.server.calls.schemas import Refusal, parse
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker

TEXTS: dict[str, Any] = {
    "classifier": "the good film 😀",
    "pairs": ["a film", "the play"],
    "chooser": ["a good", "film", "play"],
    "reader": ["the film", "a good play"],
    "tagger": "good film",
    "pretrained": "a [MASK] film",
}


@pytest.fixture(scope="module")
def worker(runs: dict[str, Path]) -> Worker:
    folders = [ModelFolder(name, runs[name]) for name in (*TEXTS, "encoder") if name in runs]
    return Worker(Orders(runs=folders, device="cpu"))


def ask(worker: Worker, **fields: Any) -> tuple[int, dict[str, Any]]:
    asked = parse(CALLS["explain"].request, json.dumps(fields).encode()).model_dump()
    (answer,) = worker.take_in([Dispatch(1, "explain", asked, 0.0, math.inf)]) or worker.work().answers
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize(
    "name", [*(name for name in TEXTS if name != "chooser"), pytest.param("chooser", marks=pytest.mark.lab)]
)
def test_the_server_says_what_the_library_says(worker: Worker, name: str) -> None:
    text = TEXTS[name]
    status, said = ask(worker, texts=[text], model=name, points=4, check=True)
    engine = worker.models[name].engine
    found = engine.explain(text if isinstance(text, str) else tuple(text), points=4, tolerance=1e9)
    assert status == 200, said
    assert said == json.loads(json.dumps({"model": name, "explanations": [[one.as_dict() for one in found]]}))


def test_what_cannot_be_explained_is_refused(worker: Worker) -> None:
    assert ask(worker, texts=["a film"], model="encoder")[0] == 422
    status, said = ask(worker, texts=["a film"], model="classifier", label="po")
    assert status == 422 and said["error"]["field"] == "label" and "pos" in said["error"]["message"]
    assert ask(worker, texts=[["a", "b"]], model="classifier")[1]["error"]["field"] == "texts[0]"
    assert ask(worker, texts=["a film"], model="pretrained")[1]["error"]["field"] == "texts[0]"
    assert ask(worker, texts=[["a", "b"]], model="pretrained")[1]["error"]["field"] == "texts"
    with pytest.raises(Refusal) as refused:
        ask(worker, texts=["a"], points=0)
    assert refused.value.status == 422 and refused.value.field == "points"
