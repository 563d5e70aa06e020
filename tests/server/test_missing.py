"""A model's folder that is deleted while it is served: nothing changes until it is needed, then 503, then back."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osbert.server import pool as pool_module
from osbert.server.calls.models import ModelFolder
from osbert.server.pool import WorkerPool
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker
from osbert.training.run_folder import RunFolder

ASKED: dict[str, dict[str, Any]] = {
    "classifier": {"call": "predict", "texts": ["a good film"]},
    "tagger": {"call": "tag", "texts": ["a good film"]},
    "reader": {"call": "answer", "question": "the film", "paragraph": "a good film", "n_best": 2},
    "chooser": {"call": "predict", "records": [{"start": "a", "a": "b", "b": "film"}]},
    "pretrained": {"call": "fill-mask", "texts": ["a [MASK] film"], "top": 3},
    "sentences": {"call": "embed", "texts": ["a good film"], "pooling": None, "normalise": None, "long": "truncate"},
    "encoder": {"call": "embed", "texts": ["a good film"], "pooling": "cls", "normalise": True, "long": "window"},
}


def test_a_worker_reads_nothing_of_a_folder_once_it_is_loaded(runs: dict[str, Path], tmp_path: Path) -> None:
    """Least of all other settings, since a model without its sentence files would give other vectors."""
    folders = {name: Path(shutil.copytree(runs[name], tmp_path / name)) for name in ASKED if name in runs}

    def answers(worker: Worker) -> list[tuple[int, bytes]]:
        now = time.monotonic()
        asking = [
            Dispatch(number, asked["call"], {"model": name, **asked}, now, now + 600)
            for number, (name, asked) in enumerate(ASKED.items())
            if name in folders
        ]
        found = worker.take_in(asking)
        while worker.queue.jobs:
            found += worker.work().answers
        return [(one.status, one.body) for one in sorted(found)]

    orders = Orders(runs=[ModelFolder(name, folder) for name, folder in folders.items()], device="cpu")
    expected = answers(Worker(orders))
    worker = Worker(orders)
    for folder in folders.values():
        shutil.rmtree(folder)
    assert answers(worker) == expected
    assert {status for status, _ in expected} == {200}


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_folder_that_is_gone_when_it_is_needed_and_comes_back(
    start: Callable[..., Any], runs: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(runs["classifier"], tmp_path / "films"))
    serving = start(str(folder), str(runs["encoder"]))
    folder.rename(tmp_path / "away")
    assert serving.post("predict", texts=["a good film"]).status_code == 200
    os.kill(serving.workers()[0], signal.SIGKILL)
    refused = serving.post("predict", texts=["a good film"])  # also where it was accepted before that was known
    assert refused.status_code == 503 and "'films' cannot be loaded" in refused.json()["error"]["message"]
    assert str(tmp_path) not in refused.text
    ready = serving.client.get("/ready")
    assert ready.status_code == 503 and ready.json() == refused.json() and int(ready.headers["retry-after"]) > 0
    health = serving.client.get("/health")
    assert health.status_code == 200 and "'films'" in health.json()["problem"]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken").rename(folder)  # as one that is still being copied
    time.sleep(1)
    assert serving.client.get("/ready").status_code == 503
    shutil.copytree(tmp_path / "away", folder, dirs_exist_ok=True)
    until(lambda: serving.client.get("/ready").status_code == 200)
    assert serving.post("predict", texts=["a good film"]).status_code == 200
    assert serving.client.get("/health").json() == {"status": "alive"}
    log = serving.end().splitlines()
    assert sum("cannot be started again" in line for line in log) <= 2 and str(folder) in log[1]
    assert log[-1] == "osbert serve: the models are loaded again."


def test_a_folder_that_comes_back_damaged_is_refused_until_it_is_whole(
    start: Callable[..., Any], runs: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(runs["classifier"], tmp_path / "films"))
    RunFolder(folder).finish({})
    serving = start(str(folder))
    expected = serving.post("predict", texts=["a good film"]).json()
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:])
    os.kill(serving.workers()[0], signal.SIGKILL)
    refused = serving.post("predict", texts=["a good film"])
    assert refused.status_code == 503 and "'films' cannot be loaded" in refused.json()["error"]["message"]
    for _ in range(4):  # it stays so, however often the server tries
        assert serving.client.get("/ready").status_code == 503
        time.sleep(0.5)
    (folder / "model.safetensors").write_bytes(whole)
    until(lambda: serving.client.get("/ready").status_code == 200)
    assert serving.post("predict", texts=["a good film"]).json() == expected
    assert str(folder / "model.safetensors") in serving.end()


def test_a_second_server_hears_that_the_port_is_taken_before_it_loads_anything(
    start: Callable[..., Any],
    runs: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also while the first has not loaded its models yet: it listens from the beginning."""
    from osbert.cli import main
    from osbert.server.access import Keys
    from osbert.server.serve import Address, listening

    monkeypatch.setattr(WorkerPool, "start", lambda self: pytest.fail("models are loaded"))
    with listening(Address(host="0.0.0.0", port=0, keys=Keys())) as door:
        port = str(door.getsockname()[1])
        assert main(["serve", str(runs["pairs"]), "--host", "0.0.0.0", "--port", port]) == 1
    told = capsys.readouterr()
    assert told.out == "" and f"port {port}: Address already in use" in told.err


def test_the_address_is_printed_by_a_server_that_can_be_asked_and_ended(
    start: Callable[..., Any], runs: dict[str, Path]
) -> None:
    serving = start(str(runs["classifier"]))
    serving.process.terminate()  # at once: a signal before the server minds them would end it with another status
    assert serving.process.wait(30) == 0


def test_pauses_grow_but_stay_short_enough_to_notice_that_a_folder_is_back() -> None:
    assert sorted(pool_module.PAUSES) == list(pool_module.PAUSES) and pool_module.PAUSES[-1] <= 10
