"""The end of a server: whoever has connected by then gets an answer, however late the request comes."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from osbert.server import connections
from osbert.server import serve as run
from osbert.server.access import Keys
from osbert.server.limits import ServerLimits
from osbert.server.metrics import ServerMetrics
from osbert.server.pool import WorkerPool
from osbert.server.wire import Orders

READY = b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = 1 << 18
POST = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
POST += b"Content-Length: %d\r\n\r\n" % (2 * HALF)
ADDRESS = run.Address(port=0, keys=Keys())


class NoWorkers(WorkerPool):
    """A pool without workers."""

    async def start(self) -> list[str]:
        return []


class Stoppable(run.Server):
    """A server that a test can stop, and keep from reading and accepting."""

    last: Stoppable
    loop: asyncio.AbstractEventLoop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        Stoppable.last, self.loop = self, asyncio.get_running_loop()
        await super().startup(sockets)

    def stall(self) -> Callable[[], None]:
        """Stop its event loop; return what lets it go on."""
        stalled, going = threading.Event(), threading.Event()
        self.loop.call_soon_threadsafe(lambda: (stalled.set(), going.wait(20)))
        assert stalled.wait(20)
        return going.set


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with run.listening(ADDRESS) as door:
        yield door


@pytest.fixture
def server(door: socket.socket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stoppable]:
    monkeypatch.setattr(run, "Server", Stoppable)
    started = threading.Event()
    pool = NoWorkers(Orders(runs=()), ServerLimits(), ServerMetrics())
    serving = run._run(pool, ADDRESS, door, lambda event: started.set())
    thread = threading.Thread(target=lambda: asyncio.run(serving))
    thread.start()
    assert started.wait(20)
    yield Stoppable.last
    Stoppable.last.service.stop()
    thread.join(20)
    assert not thread.is_alive()


def connect(door: socket.socket) -> socket.socket:
    return socket.create_connection(door.getsockname(), timeout=20)


def test_who_has_connected_before_the_end_is_answered(server: Stoppable, door: socket.socket) -> None:
    """Also those who waited in the system's queue, or sent their request only later."""
    go_on = server.stall()
    server.service.stop()
    with ExitStack() as held:
        clients = [held.enter_context(connect(door)) for _ in range(80)]
        for client in clients[::2]:
            client.sendall(READY)
        time.sleep(0.6)  # the server has nothing left to do by now
        go_on()
        time.sleep(0.8)
        for client in clients[1::2]:
            client.sendall(READY)
        for client in clients:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("head", [POST, b"nonsense\r\n\r\n"])
def test_a_refusal_reaches_a_client_that_is_still_sending(
    server: Stoppable, door: socket.socket, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    """A socket that is closed with unread bytes resets the connection, and the refusal may be lost."""
    monkeypatch.setattr(connections, "LINGER", 60.0)  # a busy machine may take long over the second half
    server.service.stop()
    with connect(door) as client:
        client.sendall(head + bytes(HALF))
        assert client.recv(1 << 16)[:12] in (b"HTTP/1.1 503", b"HTTP/1.1 400")
        time.sleep(0.1)
        client.sendall(bytes(HALF))
        while client.recv(1 << 16):  # raises ConnectionResetError at a reset
            pass


def test_who_sends_on_and_on_is_closed(server: Stoppable, door: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LINGER", 0.1)
    with connect(door) as client:
        client.sendall(b"nonsense\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|pipe"):
            while True:
                client.sendall(bytes(HALF))


def test_a_long_response_is_sent_whole_before_a_connection_with_more_in_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some clients send a line end behind their body: it must not cost them the rest of the response."""
    monkeypatch.setattr(connections, "LINGER", 0.05)
    long = 1 << 22

    class Answering(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(bytes(long))
            connections.LingeringTransport(transport, lambda: True).close()

    async def received() -> int:
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1 << 10)
            await asyncio.sleep(0.2)  # a slow reader
            found = len(await reader.read())
            writer.close()
            return found

    assert asyncio.run(received()) == long
