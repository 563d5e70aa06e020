"""The pool with workers that are no models: what it does when one dies over a request, hangs, or is only slow."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from osbert.server import pool as pool_module
from osbert.server.calls.models import ModelFolder
from osbert.server.limits import ServerLimits
from osbert.server.metrics import ServerMetrics
from osbert.server.pool import DEATHS, WorkerPool
from osbert.server.wire import (
    SLICE,
    AnswerSlice,
    LoadFailure,
    LoadReport,
    Nudge,
    Orders,
    PassReport,
    WorkerAnswer,
    frame,
)
from osbert.training.run_folder import RunFolder
from refusals import refusal

WORKER = """#!PYTHON
import socket, time
wire = socket.socket(fileno=0)
wire.recv(1 << 16)
wire.sendall({ready})
{life}
"""
DEADLY = "wire.recv(1)\nraise SystemExit(9)"
HANGING = "time.sleep(600)"
IDLE = "while wire.recv(1 << 16): wire.sendall({read})"
READING = """#!PYTHON
# the worker's own loop, with a call that ends the process over poison, at one of two places
import collections, os, socket, types
from osbert.server import worker
from osbert.server.batching import Queue
from osbert.server.wire import Wire

def dying(place, items):
    if place == {place!r} and "poison" in items:
        os._exit(9)
    return items

class Call:
    what = "try"
    option = staticmethod(lambda asked: None)
    needs = ""
    items = staticmethod(lambda model, asked: [Item(text) for text in dying("items", asked["texts"])])
    read = staticmethod(lambda model, items, option: dying("read", items))
    answer = staticmethod(lambda model, asked, items, said: {{"said": said}})
    steps = staticmethod(lambda model, asked, items: None)

class Item(str):
    tokens = 1

class Worker(worker.Worker):
    def __init__(self, orders):
        self.calls, self.models = {{"try": Call}}, {{"any": types.SimpleNamespace(name="any")}}
        self.queue, self.writing, self.read_last = Queue(tokens=8, wait=0.05), collections.deque(), False

    def ready(self):
        return worker.LoadReport([], [])

worker.Worker = Worker
worker.find = lambda models, *wanted: models["any"]
worker.serve(Wire(socket=socket.socket(fileno=0)))
"""


@pytest.fixture
def pool_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkerPool]:
    """Give what makes a pool whose workers live as told, once they said that they are ready."""

    def made(life: str, **limits: Any) -> WorkerPool:
        program = tmp_path / "worker"
        whole = life if life.startswith("#!") else WORKER.format(ready=frame(LoadReport([], [])), life=life)
        program.write_text(whole.replace("PYTHON", sys.executable, 1))
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return WorkerPool(Orders(runs=[]), ServerLimits(**limits), ServerMetrics())

    return made


async def asked(pool: WorkerPool) -> WorkerAnswer:
    await pool.start()
    pending = pool.submit("predict", {}, time.monotonic() + 60)
    try:
        return await asyncio.wait_for(pending.answer, 30)
    finally:
        await pool.close()


def test_a_server_that_cannot_start_gives_the_code_of_the_cause(
    pool_of: Callable[..., WorkerPool], tmp_path: Path
) -> None:
    failed = LoadFailure("run: config.json is damaged", "run", "damaged-file")
    pool = pool_of(WORKER.format(ready=frame(failed), life=""))
    with refusal("damaged-file", "config.json"):
        asyncio.run(pool.start())
    pool.orders = Orders(runs=[ModelFolder("run", tmp_path / "gone")])
    with refusal("missing-file", tmp_path / "gone"):
        asyncio.run(pool.start())


def test_a_request_that_kills_its_workers_is_ended(
    pool_of: Callable[..., WorkerPool], capsys: pytest.CaptureFixture[str]
) -> None:
    pool = pool_of(DEADLY)
    answered = asyncio.run(asked(pool))
    assert (
        answered.status == 503 and f"{DEATHS} workers died over this" in json.loads(answered.body)["error"]["message"]
    )
    assert not pool.pending and f"osbert_worker_deaths_total {DEATHS:.1f}" in pool.metrics.text().decode()
    assert "a worker died (status 9); another takes over its requests." in capsys.readouterr().err


def test_a_large_answer_comes_in_slices(pool_of: Callable[..., WorkerPool]) -> None:
    """Else the event loop stands still while it copies one of many megabytes."""
    pool = pool_of(READING.format(place="none"))
    texts = [["a"], ["b" * (3 * SLICE)], ["c" * SLICE, "d"]]

    async def answered() -> list[list[bytes]]:
        await pool.start()
        pending = [pool.submit("try", {"texts": one}, time.monotonic() + 60) for one in texts]
        try:
            await asyncio.wait_for(asyncio.gather(*(one.answer for one in pending)), 60)
        finally:
            await pool.close()
        return [one.body for one in pending]

    bodies = asyncio.run(answered())
    assert [len(slices) for slices in bodies] == [1, 4, 2]
    assert all(0 < len(part) <= SLICE for slices in bodies for part in slices)
    assert [json.loads(b"".join(slices))["said"] for slices in bodies] == texts


def test_slices_of_a_worker_that_dies_are_forgotten(pool_of: Callable[..., WorkerPool]) -> None:
    """The next worker sends the whole answer; after the last death there is a refusal."""
    pool = pool_of(f"wire.recv(1)\nwire.sendall({frame(AnswerSlice(0, b'half an answer'))!r})\nraise SystemExit(9)")

    async def answered() -> list[bytes]:
        await pool.start()
        pending = pool.submit("predict", {}, time.monotonic() + 60)
        try:
            await asyncio.wait_for(pending.answer, 30)
        finally:
            await pool.close()
        return pending.body

    (body,) = asyncio.run(answered())
    assert f"{DEATHS} workers" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("place", ["items", "read"])
def test_a_request_that_kills_its_workers_takes_no_other_with_it(
    pool_of: Callable[..., WorkerPool], place: str
) -> None:
    pool = pool_of(READING.format(place=place))
    texts = [["a"], ["poison"], *([str(number), "b"] for number in range(18))]

    async def answered() -> list[WorkerAnswer]:
        await pool.start()
        pending = [pool.submit("try", {"texts": one}, time.monotonic() + 60) for one in texts]
        try:
            return await asyncio.wait_for(asyncio.gather(*(one.answer for one in pending)), 60)
        finally:
            await pool.close()

    answers = asyncio.run(answered())
    assert [one.status for one in answers] == [503 if "poison" in one else 200 for one in texts]
    assert [json.loads(one.body).get("said") for one in answers if one.status == 200] == [texts[0], *texts[2:]]
    assert f"osbert_worker_deaths_total {DEATHS:.1f}" in pool.metrics.text().decode()
    assert not pool.pending


def test_a_worker_that_is_known_to_be_dead_is_sent_nothing(pool_of: Callable[..., WorkerPool]) -> None:
    """Its end may be read only later; what comes until then waits for the next worker."""
    pool = pool_of(IDLE)
    dead, alive = (pool_module._Worker(process=MagicMock(), writer=MagicMock()) for _ in range(2))
    dead.writer.is_closing.return_value, alive.writer.is_closing.return_value = True, False  # type: ignore[attr-defined]

    async def run() -> None:
        pool._ready.append(dead)
        assert pool.submit("predict", {}, math.inf).worker is None
        pool._ready.append(alive)
        assert pool.submit("predict", {}, math.inf).worker is alive
        dead.send(Nudge())

    asyncio.run(run())
    assert not dead.writer.write.called and alive.writer.write.called  # type: ignore[attr-defined]


def test_files_are_hashed_again_only_if_they_may_be_others(
    pool_of: Callable[..., WorkerPool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "vocab.txt").write_text("[PAD]\n")
    RunFolder(run).finish({})
    pool = pool_of(DEADLY)
    pool.orders = Orders(runs=[ModelFolder("run", run)])
    sent: list[bool] = []
    framed = pool_module.frame

    def noting(message: Any) -> bytes:
        if isinstance(message, Orders):
            sent.append(message.opening.verify)
            if len(sent) == 2:  # between the check and the end of the second worker
                (run / "vocab.txt").write_text("[PAD]\n")
        return framed(message)

    monkeypatch.setattr(pool_module, "frame", noting)
    asyncio.run(asked(pool))
    assert sent[:3] == [True, False, True]


def test_workers_that_hang_are_killed(pool_of: Callable[..., WorkerPool], capsys: pytest.CaptureFixture[str]) -> None:
    answered = asyncio.run(asked(pool_of(HANGING, patience=0.2)))
    assert answered.status == 503
    told = capsys.readouterr().err
    assert told.count("a worker hangs, for 0.2 s by now.") >= DEATHS
    assert told.count("a worker died (killed by signal 9); another takes over") >= DEATHS - 1  # the last is told later


def test_workers_that_have_nothing_to_do_are_left_alone(
    pool_of: Callable[..., WorkerPool], capsys: pytest.CaptureFixture[str]
) -> None:
    pool = pool_of(IDLE.format(read=frame(PassReport([]))), patience=2.0)

    async def waited() -> None:
        await pool.start()
        await asyncio.sleep(3.0)
        await pool.close()

    asyncio.run(waited())
    assert "osbert_worker_deaths_total 0.0" in pool.metrics.text().decode()
    assert capsys.readouterr().err == ""
