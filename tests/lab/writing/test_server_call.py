"""POST /v1/generate: the texts that Python gets, in parts while they are written, bounded, ended by the client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import osbert
from osbert.inference.engine import Engine
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.server import worker as worker_module
from osbert.server.call_table import CALLS
from osbert.server.calls.models import ModelFolder, ServerModel, WritingLimits
from osbert.server.wire import Cancellation, Dispatch, Orders, PassReport
from osbert.server.worker import Worker
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.writing import prompt_writer
from osbert_lab.writing.generate import Generate
from osbert_lab.writing.pair_architecture import PairArchitecture
from refusals import refusal
from tiny_runs import write_run

LONG = 400


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("writers")
    sizes: dict[str, Any] = {"direction": "left_to_right", "segments": 0}
    task = Generate(text=("source",), target="target", sight="left_to_right", most=6, beams=2)
    return {
        "writer": write_run(place / "writer", None, masks=True, length=LONG, **sizes),
        "run": write_run(place / "run", task, **sizes),
        "encoder": write_run(place / "encoder", None, masks=True),
    }


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, Engine]:
    return {name: osbert.load(folder) for name, folder in folders.items()}


@pytest.fixture
def worker(folders: dict[str, Path]) -> Worker:
    runs = [ModelFolder(name, folder) for name, folder in folders.items()]
    return Worker(Orders(runs=runs, device="cpu", writing=WritingLimits(pieces=300, beams=3)))


def _asked(call: str, **values: Any) -> dict[str, Any]:
    return CALLS[call].request(**values).model_dump()


def _dispatch(number: int, seconds: float = 60, call: str = "generate", **values: Any) -> Dispatch:
    now = time.monotonic()
    return Dispatch(number, call, _asked(call, **values), now, now + seconds)


def _passes(worker: Worker) -> Iterator[PassReport]:
    while worker.due(time.monotonic()) is not None:
        yield worker.work()


def _answer(worker: Worker, **values: Any) -> tuple[int, dict[str, Any]]:
    found = worker.take_in([_dispatch(1, **values)]) or [one for report in _passes(worker) for one in report.answers]
    (answer,) = found
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize("name", ["writer", "run"])
def test_it_writes_what_python_writes(worker: Worker, models: dict[str, Engine], name: str) -> None:
    texts, options = ["the good", "bad film"], {"most": 5, "beams": 2}
    status, body = _answer(worker, model=name, texts=texts, **options)
    assert status == 200 and body["model"] == name
    assert body["generations"] == [one.as_dict() for one in models[name].generate(texts, **options)]  # type: ignore[arg-type]
    _, drawn = _answer(worker, model=name, texts=texts, sample=True, seed=4)
    alike = models[name].generate(texts, sample=True, seed=4)
    assert [one["text"] for one in drawn["generations"]] == [one.text for one in alike]


def _write_pair(folder: Path, *sentinels: str) -> None:
    """Write an encoder-decoder that writes from a source."""
    tokenizer = Tokenizer([*SPECIALS, "good", *sentinels])
    backbone = PairArchitecture(vocabulary=len(tokenizer), layers=1, heads=2, width=16, length=24).build()
    write_model(Learner(backbone, {"mlm": MaskedLanguageHead(backbone)}), folder, tokenizer=tokenizer)
    write_tokenizer(tokenizer, folder, length=24)


def test_more_gaps_than_sentinels_are_refused_here_and_in_python(tmp_path: Path) -> None:
    _write_pair(tmp_path, "<extra_id_0>")
    model, texts = osbert.load(tmp_path), ["good [MASK]", "[MASK] good [MASK]"]
    with refusal("too-many-gaps", "texts[1]"):
        model.generate(texts, most=2)
    with refusal("too-many-gaps"):
        model.stream(texts[1], most=2)
    worker = Worker(Orders(runs=[ModelFolder("pair", tmp_path)], device="cpu", writing=WritingLimits()))
    status, body = _answer(worker, model="pair", texts=texts, most=2)
    assert (status, body["error"]["field"]) == (422, "texts[1]")


def test_who_writes_is_declared(worker: Worker, tmp_path: Path) -> None:
    told = {name: model.facts()["writes"] for name, model in worker.models.items()}
    assert told == {"writer": True, "run": True, "encoder": False}
    _write_pair(tmp_path)
    facts = ServerModel("pair", osbert.load(tmp_path)).facts()
    assert (facts["kind"], facts["writes"]) == ("source_writer", True)  # what it writes is no continuation


@pytest.mark.parametrize(
    ("values", "status", "field"),
    [
        ({"most": 301}, 413, "most"),
        ({"beams": 4}, 413, "beams"),
        ({"beams": 65}, 422, "beams"),
        ({"top_k": 3}, 422, "top_k"),
        ({"sample": True, "beams": 2}, 422, "sample"),
        ({"least": 9, "most": 3}, 422, "least"),
        ({"least": 65}, 422, "least"),
        ({"texts": ["a", "the film " * 200], "most": 9}, 422, "texts[1]"),
        ({"texts": [["a", "the"]]}, 422, "texts[0]"),
        ({"model": "run", "most": 23}, 422, "most"),
        ({"model": "run", "texts": [""]}, 422, "texts[0]"),
        ({"model": "encoder"}, 422, "model"),
    ],
)
def test_a_refusal_names_the_field(worker: Worker, values: dict[str, Any], status: int, field: str) -> None:
    found, body = _answer(worker, **{"texts": ["the good"], **values})
    assert (found, body["error"]["field"]) == (status, field)


def test_a_request_without_memory_is_refused(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_writer, "free_memory", lambda device: 0)
    for asked, field in (({"most": 7}, "most"), ({"most": 7, "beams": 2}, "beams")):
        status, body = _answer(worker, texts=["the good"], **asked)
        assert (status, body["error"]["field"]) == (413, field)


def test_parts_come_while_others_are_read(
    worker: Worker, models: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "SLICE", 0.0)
    asked = {"texts": ["the good", "bad"], "most": 8, "stream": True}
    worker.take_in([_dispatch(1, **asked), _dispatch(2, call="embed", texts=["a"], model="encoder")])  # type: ignore[arg-type]
    reports = list(_passes(worker))
    answered = [one.number for report in reports for one in report.answers]
    assert answered == [2, 1]
    parts = [part for report in reports for part in report.parts]
    assert [part.part_index for part in parts] == [*range(len(parts))] and len(parts) == 16
    texts = ["", ""]
    for part in parts:
        said = json.loads(part.body)
        texts[said["index"]] += said["text"]
    assert texts == [one.text for one in models["writer"].generate(asked["texts"], most=8)]  # type: ignore[arg-type]


def test_the_client_and_the_clock_end_the_work(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "SLICE", 0.0)
    worker.take_in([_dispatch(1, texts=["a"], most=200), _dispatch(2, texts=["a"], most=200, beams=3)])
    worker.work()
    worker.take_in([Cancellation(1)])
    assert [job.number for job in worker.writing] == [2]
    worker.writing[0].deadline = time.monotonic()
    (answer,) = worker.work().answers
    assert (answer.status, json.loads(answer.body)["error"]["field"]) == (504, "most")
    assert worker.due(time.monotonic()) is None


def test_a_stream_over_http(folders: dict[str, Path], models: dict[str, Engine], start: Callable[..., Any]) -> None:
    serving = start(str(folders["writer"]), "--most-pieces", "350", "--wait", "1")
    asked = {"texts": ["the good"], "most": 20, "stream": True}
    with serving.client.stream("POST", "/v1/generate", json=asked) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = [block.split("\n") for block in reply.read().decode().strip().split("\n\n")]
    assert events[-1][0] == "event: done"
    whole = json.loads(events[-1][1].removeprefix("data: "))["generations"][0]["text"]
    parts = [json.loads(lines[0].removeprefix("data: "))["text"] for lines in events[:-1]]
    assert "".join(parts) == whole == models["writer"].generate(["the good"], most=20)[0].text and len(parts) == 20
    refused = serving.post("generate", texts=["a"], most=351, stream=True)
    assert (refused.status_code, refused.json()["error"]["field"]) == (413, "most")
    with httpx.Client(base_url=serving.url, timeout=30) as leaving:
        long = {"texts": ["a"] * 60, "least": 350, "most": 350, "stream": True}
        with leaving.stream("POST", "/v1/generate", json=long) as reply:
            lines = reply.iter_lines()  # kept: httpx closes the stream with its iterator
            next(lines)
            assert serving.metric("osbert_queue_requests") == 1
    # A stream is counted at its end: the whole one and the one that was left.
    wanted = {"osbert_queue_requests": 0} | {
        f'osbert_requests_total{{path="/v1/generate",status="{status}"}}': 1 for status in (200, 413, 499)
    }
    until = time.monotonic() + 20
    while (found := {name: serving.metric(name) for name in wanted}) != wanted and time.monotonic() < until:
        time.sleep(0.02)
    assert found == wanted
