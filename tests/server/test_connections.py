"""Connections that send nothing, or too slowly, or take nothing; and requests whose end is not clear."""

from __future__ import annotations

import asyncio
import errno
import functools
import json
import os
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from osbert.server.access import Keys
from osbert.server.connections import FEWEST, RATE, Connection, Room
from osbert.server.limits import ServerLimits
from osbert.server.metrics import ServerMetrics
from osbert.server.serve import Address, listening
from refusals import refusal

BODY = b'{"texts": ["a good film"]}'
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
GOOD = HEAD + LENGTH + b"\r\n" + BODY


@pytest.fixture(scope="module")
def quick(runs: dict[str, Path]) -> Iterator[Any]:
    """Serve with little patience, and with room for few connections."""
    from serving import Serving

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))  # the process inherits it
    try:
        serving = Serving(str(runs["encoder"]), str(runs["classifier"]), "--idle", "1.5")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    serving.client.close()
    # Without kept connections: the server may close one at the moment at which a request is sent on it.
    serving.client = httpx.Client(base_url=serving.url, timeout=30, limits=httpx.Limits(max_keepalive_connections=0))
    try:
        yield serving
    finally:
        serving.close()


def connect(serving: Any) -> socket.socket:
    address = (serving.client.base_url.host, serving.client.base_url.port)
    return socket.create_connection(address, timeout=20)


def told(connection: socket.socket) -> bytes:
    """Return all that a server says until it closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def status(connection: socket.socket) -> tuple[int, str]:
    """Return the one answer to a connection that is then closed: its status, and the message of a refusal."""
    head, _, body = told(connection).partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower() and head.count(b"HTTP/1.1") == 1
    return int(head.split()[1]), json.loads(body).get("error", {}).get("message", "")


@pytest.mark.parametrize(
    "sent", [b"", b"GET /health HTTP/1.1\r\nHost: loc", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"]
)
def test_who_sends_no_header_in_time_is_closed(quick: Any, sent: bytes) -> None:
    """Also after an answer, however often a byte comes."""
    with connect(quick) as connection:
        connection.sendall(sent)
        begin = time.monotonic()
        closed = threading.Event()

        def drip() -> None:
            while not closed.wait(0.2):
                try:
                    connection.sendall(b"G" if sent else b"")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        answer = told(connection)
        closed.set()
        dripping.join()
    assert 0.5 < time.monotonic() - begin < 15
    assert answer[:12] in ((b"",) if not sent else (b"HTTP/1.1 408", b"HTTP/1.1 421", b"HTTP/1.1 400"))


def test_a_connection_whose_request_is_not_read_yet_is_not_the_one_to_close() -> None:
    room = Room(ServerLimits(connections=2), ServerMetrics(), workers=1)

    def connected(arrived: bool) -> Any:
        connection = MagicMock()
        connection.has_arrived.return_value = arrived
        connection.cut.side_effect = lambda: room.leave(connection)
        return connection

    busy, idle, new, last = (connected(arrived) for arrived in (True, False, False, False))
    assert [room.enter(connection) for connection in (busy, idle, new)] == [True, True, True]
    assert idle.cut.called and room.open == {busy, new}
    new.has_arrived.return_value = True
    assert not room.enter(last) and room.open == {busy, new}


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_kept_connection_ends_without_a_reset(quick: Any, sent: bytes) -> None:
    """A client that keeps connections sees the end of one before it uses it again; a reset would lose its request."""
    with connect(quick) as connection:
        connection.sendall(sent)
        while connection.recv(1 << 16):  # raises ConnectionResetError at a reset
            pass


def test_who_does_not_take_an_answer_is_closed(quick: Any) -> None:
    body = json.dumps({"model": "encoder", "texts": ["film"] * 128}).encode()
    request = b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    before = quick.metric("osbert_connections_cut_total")
    with connect(quick) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(1)
        try:  # until neither side takes any more
            for _ in range(2000):
                connection.sendall(request + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        except (TimeoutError, OSError):
            pass
        deadline = time.monotonic() + 20
        while quick.metric("osbert_connections_cut_total") == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_silent_connections_keep_nobody_out(quick: Any) -> None:
    """There are more than the limit on open files; whoever sends a request is answered, and the log says it once."""
    silent = [connect(quick) for _ in range(300)]
    try:
        slow = connect(quick)
        slow.sendall(HEAD + LENGTH + b"\r\n" + BODY[:5])
        for _ in range(5):
            with httpx.Client(base_url=quick.url, timeout=10) as client:
                assert client.get("/health").status_code == 200
                answer = client.post("/v1/predict", content=BODY, headers={"content-type": "application/json"})
                assert answer.status_code == 200
                silent += [connect(quick) for _ in range(20)]
        most = quick.metric("osbert_connections ")
        assert FEWEST <= most <= 128
        slow.close()
    finally:
        for one in silent:
            one.close()


def test_requests_are_refused_whose_end_a_proxy_could_see_elsewhere(quick: Any) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n"
    for broken in (
        HEAD + LENGTH + chunked + b"\r\n0\r\n\r\n",
        HEAD + chunked + LENGTH + b"\r\n0\r\n\r\n",
        HEAD + LENGTH + LENGTH + b"\r\n" + BODY,
        HEAD + b"Content-Length: 5, 5\r\n\r\n" + BODY,
        HEAD + b"Content-Length: +5\r\n\r\n" + BODY,
        HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        HEAD + LENGTH + b"X: a\r\n\tb\r\n\r\n" + BODY,
        HEAD.replace(b"1.1", b"1.0") + chunked + b"\r\n0\r\n\r\n",
        HEAD + b"Host: localhost\r\n" + LENGTH + b"\r\n" + BODY,
        HEAD + b"Content-Length : 5\r\n\r\n" + BODY,
        HEAD.replace(b"Host: localhost\r\n", b"") + LENGTH + b"\r\n" + BODY,
    ):
        with connect(quick) as connection:
            connection.sendall(broken + GOOD)
            refused, message = status(connection)
            assert refused == 400 and message, broken
    for odd, expected in ((b"Transfer-Encoding: gzip, chunked\r\n", 501), (b"X: " + b"a" * 40_000 + b"\r\n", 431)):
        with connect(quick) as connection:
            connection.sendall(HEAD + odd + b"\r\n0\r\n\r\n")
            assert status(connection)[0] == expected


def test_the_second_of_two_requests_is_read_as_strictly(quick: Any) -> None:
    """Whether the first was answered by then, or refused before its body had come."""
    folded = HEAD + LENGTH + b"X: a\r\n b\r\n\r\n" + BODY
    early = GOOD.replace(b"application/json", b"text/plain")
    for first, expected in ((GOOD, b"200"), (early, b"415")):
        with connect(quick) as connection:
            connection.sendall(first + folded)
            assert re.findall(rb"HTTP/1.1 (\d+)", told(connection)) == [expected, b"400"]


def test_a_body_with_line_ends_and_a_broken_chunk(quick: Any) -> None:
    body = b'{\r\n\r\n "texts":\r\n ["a"]\r\n}'
    with connect(quick) as connection:
        length = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall((HEAD + length)[:100])
        time.sleep(0.1)
        connection.sendall((HEAD + length)[100:] + body)
        assert status(connection)[0] == 200
    with connect(quick) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\nzz\r\n")
        assert status(connection)[0] == 400


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_who_ends_its_side_after_its_requests_gets_their_answers(quick: Any, version: bytes) -> None:
    request = GOOD.replace(b"HTTP/1.1", b"HTTP/" + version)
    for count in (1, 1 if version == b"1.0" else 3):
        with connect(quick) as connection:
            connection.sendall(request * count)
            connection.shutdown(socket.SHUT_WR)
            answers = told(connection)
        assert re.findall(rb"HTTP/1.1 ([2-5]\d\d)", answers) == [b"200"] * count
        assert answers.count(b'"predictions"') == count


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + LENGTH + b"\r\n" + BODY[:5]])
def test_who_ends_its_side_within_a_request_is_closed(quick: Any, sent: bytes) -> None:
    with connect(quick) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert told(connection) == b""


def test_the_log_of_all_that_is_one_line_a_minute(quick: Any) -> None:
    """It ends the server, which still does so in order: no further test of this file uses it."""
    with ExitStack() as held:
        for _ in range(130):  # more than the limit: the tests before this one may have run in another process
            held.enter_context(connect(quick))
        assert quick.client.get("/health").status_code == 200
        log = quick.end()
    lines = log.splitlines()
    assert 1 <= len(lines) <= 1 + (time.monotonic() - quick.begun) // 60
    assert all("connections are open, which is the maximum" in line for line in lines)


def test_a_client_has_the_idle_time_once_for_all_parts_of_an_answer() -> None:
    """Beside the time that the bytes take at the lowest rate: else it could take each part as slowly as the first."""
    room = Room(ServerLimits(idle=10), ServerMetrics(), workers=1)

    async def run() -> list[float]:
        config = uvicorn.Config(MagicMock(), http=functools.partial(Connection, room=room), lifespan="off")
        connection = Connection(config=config, server_state=ServerState(), app_state={}, room=room)
        loop, wire = MagicMock(), MagicMock()
        loop.time.return_value = 0.0
        wire.get_write_buffer_size.return_value = 0
        connection.loop = loop
        connection.connection_made(wire)
        seconds = []
        for taking in (3.0, 1.0, 6.0, 4.0):  # of the second part it takes as much as it has to
            wire.get_write_buffer_size.return_value = 2 * RATE
            connection.pause_writing()
            seconds.append(loop.call_later.call_args.args[0])
            loop.time.return_value += taking
            wire.get_write_buffer_size.return_value = 0
            connection.resume_writing()
        return seconds

    assert asyncio.run(run()) == [12.0, 11.0, 11.0, 7.0]


def test_room_is_below_the_limit_on_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def room(files: int, workers: int = 1) -> Room:
        monkeypatch.setattr(resource, "getrlimit", lambda of: (files, files))
        return Room(ServerLimits(), ServerMetrics(), workers=workers)

    assert room(resource.RLIM_INFINITY).most == room(10_000).most == ServerLimits().connections
    assert room(1024).most < 1024 - 100 and room(1024, 4).most < room(1024).most
    with refusal("too-few-open-files", "64"):
        room(64)


def test_that_no_file_is_left_is_logged_once_and_other_errors_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    room = Room(ServerLimits(), ServerMetrics(), workers=1)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(room.handle)
        for _ in range(3):
            error = OSError(errno.EMFILE, "Too many open files")
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
        passed: list[Any] = []
        loop.default_exception_handler = passed.append  # type: ignore[method-assign]
        loop.call_exception_handler({"message": "other", "exception": OSError(errno.EIO, "broken")})
        assert [context["message"] for context in passed] == ["other"]

    asyncio.run(run())
    assert capsys.readouterr().err.count("Too many open files") == 1


def test_a_connection_that_has_a_request_under_way_gives_way_last(start: Callable[..., Any], runs: Any) -> None:
    serving = start(str(runs["classifier"]), "--connections", "2")
    (worker,) = serving.workers()
    os.kill(worker, signal.SIGSTOP)
    with connect(serving) as busy, connect(serving) as other:
        busy.sendall(GOOD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        other.sendall(GOOD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        time.sleep(0.3)
        with connect(serving) as third:
            assert told(third) == b""
        os.kill(worker, signal.SIGCONT)
        assert status(busy)[0] == status(other)[0] == 200


def test_an_accepted_socket_sends_small_parts_at_once() -> None:
    """An answer is a header and a body: with Nagle's algorithm the body waits for the client's delayed ACK."""

    async def accept(door: socket.socket) -> int:
        accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda reader, writer: accepted.set_result(writer), sock=door)
        async with server:
            _, client = await asyncio.open_connection(*door.getsockname())
            answering = await accepted
            option = answering.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for writer in (client, answering):
                writer.close()
                await writer.wait_closed()
        return int(option)

    with listening(Address(port=0, keys=Keys())) as door:
        assert asyncio.run(accept(door))
