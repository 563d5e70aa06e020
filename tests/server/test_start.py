"""osbert serve from its start to its end: what keeps it from starting, keys, origins, limits, several workers."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from osbert import server
from osbert.cli import main

ASKED = {"texts": ["a good film"]}
HEAD = "POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["{runs}/none"], ("none",)),
        (["{runs}/pairs", "pairs={runs}/number"], ("pairs", "NAME=PATH")),
        (["={runs}/pairs"], ("={runs}/pairs",)),
        (["{runs}/pairs", "--queue", "0", "--wait", "-1"], ("--queue", "not 0", "--wait", "not -1")),
        (["{runs}/pairs", "--workers", "0"], ("1 worker",)),
        (["{runs}/pairs", "--keys", "{runs}/nothing"], ("nothing",)),
        (["{runs}/pairs", "--port", "70000"], ("--port", "70000", "65535")),
        (["{runs}/pairs", "--host", "no.such.host.invalid"], ("no.such.host.invalid",)),
        (["{runs}", "--port", "0"], ("config.json",)),
    ],
)
def test_what_keeps_it_from_starting_is_told(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], arguments: list[str], values: tuple[str, ...]
) -> None:
    folder = runs["pairs"].parent
    assert main(["serve", *(one.format(runs=folder) for one in arguments)]) == 1
    said = capsys.readouterr().err
    assert all(value.format(runs=folder) in said for value in values), said


def test_a_port_that_is_taken_and_an_extra_that_is_missing(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        assert main(["serve", str(runs["pairs"]), "--port", str(door.getsockname()[1])]) == 1
    assert "Address already in use" in capsys.readouterr().err
    monkeypatch.setattr(server, "NEEDED", ("fastapi", "no_such_library"))
    assert main(["serve", str(runs["pairs"])]) == 1
    said = capsys.readouterr().err
    assert "no_such_library" in said and 'pip install "osbert[serve]"' in said


def test_keys_origins_and_limits(start: Callable[..., Any], runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("0123456789abcdef\n")
    limits = ["--texts", "1", "--characters", "20", "--body", "200", "--workers", "2"]
    serving = start(str(runs["classifier"]), "--keys", str(tmp_path / "keys"), "--cors", "https://example.org", *limits)
    assert serving.post("predict", **ASKED).status_code == 401
    refused = serving.client.get("/v1/models", headers={"authorization": "Bearer 0123456789abcdeF"})
    assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert [serving.client.get(path).status_code for path in ("/health", "/ready", "/metrics")] == [200, 200, 401]
    serving.client.headers["authorization"] = "Bearer 0123456789abcdef"
    serving.client.headers["origin"] = "https://example.org"
    answer = serving.post("predict", **ASKED)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://example.org"
    sizes = [["a", "b"], ["good " * 5], ["good " * 40]]
    fields = [serving.post("predict", texts=texts).json()["error"]["field"] for texts in sizes]
    assert fields == ["texts", "texts[0]", "body"]
    assert serving.metric("osbert_workers_ready") == 2
    assert serving.end() == ""


def test_a_full_queue_a_client_that_leaves_and_a_deadline(start: Callable[..., Any], runs: dict[str, Path]) -> None:
    serving = start(str(runs["classifier"]), "--queue", "1", "--deadline", "2")
    host, port = serving.client.base_url.host, serving.client.base_url.port
    body = b'{"texts": ["a"]}'
    head = HEAD + f"content-length: {len(body)}\r\n\r\n"
    (worker,) = serving.workers()
    os.kill(worker, signal.SIGSTOP)
    with socket.create_connection((host, port)) as client:
        client.sendall(head.encode() + body)
        until(lambda: serving.metric("osbert_queue_requests") == 1)
        full = serving.post("predict", **ASKED)
        assert full.status_code == 429 and 1 <= int(full.headers["retry-after"]) <= 60
    until(lambda: serving.metric("osbert_queue_requests") == 0)  # it left before its answer
    assert serving.metric('osbert_requests_total{path="/v1/predict",status="499"}') == 1
    begin = time.monotonic()
    threading.Timer(2.2, os.kill, (worker, signal.SIGCONT)).start()
    late = serving.post("predict", **ASKED)
    assert late.status_code == 504 and 1.5 < time.monotonic() - begin < 8
    assert serving.metric("osbert_pass_items_sum") == 0  # neither was read


def test_requests_that_are_still_coming(start: Callable[..., Any], runs: dict[str, Path]) -> None:
    serving = start(str(runs["classifier"]), "--queue", "1", "--body", "200")
    place = (serving.client.base_url.host, serving.client.base_url.port)
    body = b'{"texts": ["a"]}'.ljust(150)
    head = HEAD.encode() + b"content-length: 151\r\n\r\n"

    def post() -> httpx.Response:
        return serving.client.post("/v1/predict", content=body, headers={"content-type": "application/json"})

    with socket.create_connection(place) as client:
        client.sendall(head + body)
        # together they have more bytes than one that waits may have, and whoever came second is refused
        until(lambda: post().status_code == 429 or client in select.select([client], [], [], 0)[0])
    until(lambda: post().status_code == 200)
    with socket.create_connection(place) as client:
        client.sendall(head + body)
        until(lambda: serving.client.get("/ready").status_code == 200)
        serving.process.terminate()
        until(lambda: serving.client.get("/ready").status_code == 503)
        client.sendall(b" ")  # it began before the end, and is whole after it
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
    assert serving.process.wait(30) == 0 and serving.errors() == ""


def test_what_was_accepted_is_finished_at_the_end(start: Callable[..., Any], runs: dict[str, Path]) -> None:
    serving = start(str(runs["classifier"]))
    (worker,) = serving.workers()
    os.kill(worker, signal.SIGSTOP)
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(httpx.post(f"{serving.url}/v1/predict", json=ASKED)))
    asking.start()
    until(lambda: serving.metric("osbert_queue_requests") == 1)
    serving.process.terminate()
    until(lambda: serving.client.get("/ready").status_code == 503)
    refused = serving.post("predict", **ASKED)
    assert refused.status_code == 503 and refused.headers["connection"] == "close" and "retry-after" in refused.headers
    os.kill(worker, signal.SIGCONT)
    asking.join(30)
    assert answers[0].status_code == 200
    assert serving.process.wait(30) == 0 and serving.errors() == ""


def until(true: Callable[[], bool], *, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_worker_that_hangs_is_replaced_and_an_idle_one_is_not(
    start: Callable[..., Any], runs: dict[str, Path]
) -> None:
    serving = start(str(runs["classifier"]), "--patience", "3")
    (worker,) = serving.workers()
    time.sleep(3.5)
    assert serving.workers() == [worker]
    # A server that was stopped itself, as by docker pause, does not take its workers' silence for hanging.
    serving.process.send_signal(signal.SIGSTOP)
    time.sleep(3.5)
    serving.process.send_signal(signal.SIGCONT)
    assert serving.post("predict", **ASKED).status_code == 200
    assert serving.workers() == [worker]
    os.kill(worker, signal.SIGSTOP)
    assert serving.post("predict", **ASKED).status_code == 200
    assert serving.workers() != [worker] and serving.metric("osbert_worker_deaths_total") == 1
    assert "a worker hangs, for 3 s by now." in serving.end()
