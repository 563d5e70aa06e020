"""Runs a server: opens the socket, loads the models, serves until a signal, and finishes the accepted requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from osbert.errors import UserError
from osbert.runs.contract import Notice, Watch, ignore
from osbert.server.access import Hosts, Keys
from osbert.server.connections import Connection, Room
from osbert.server.http import Service, application
from osbert.server.limits import ServerLimits
from osbert.server.metrics import ServerMetrics
from osbert.server.pool import WorkerPool
from osbert.server.wire import Orders

LEAVING = 3
"""Fewest ticks (0.1 s, longer on a busy machine) between the last answer and the end."""
LONGEST = 30
"""Most such ticks. The server then ends, although requests may still arrive on open connections."""
QUEUE = 2048
"""Backlog: most connections that the system queues until the server accepts them."""
LAST = 5
"""Seconds that clients have at the end to read their answers."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """The address of a server, the further host names and origins that it accepts, and its keys."""

    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    keys: Keys

    @property
    def hosts(self) -> Hosts:
        """The host names and origins that requests may use."""
        return Hosts(names=(*self.names, self.host), origins=self.origins)


class Server(uvicorn.Server):
    """uvicorn's server with an orderly stop: refuse further requests, answer the accepted ones, then close."""

    def __init__(self, config: uvicorn.Config, service: Service, door: socket.socket, room: Room, watch: Watch) -> None:
        """Serve on the listening socket `door`; `room` has the open connections, and `watch` gets the address."""
        super().__init__(config)
        self.watch = watch
        self.service = service
        self.door = door
        self.room = room
        self.ticks = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and then report the address, so that its reader can send requests at once."""
        await super().startup(sockets)
        self.door.listen(QUEUE)  # again: asyncio sets a smaller backlog, the number that it accepts at a time
        host, port = self.door.getsockname()[:2]
        self.watch(Notice(f"http://{f'[{host}]' if ':' in host else host}:{port}"))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the orderly stop. The second signal stops at once."""
        if self.service.stopped is not None:
            self.should_exit = self.force_exit = True
        self.service.stop()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end: all requests are answered, also those of clients that connected meanwhile.

        It counts ticks, not seconds: without processor time the server does not end before it has seen its clients.
        The system resets a connection that is made between the last look at the backlog and the end.
        """
        if self.service.finished:
            self.ticks += 1
            self.should_exit |= self.ticks > LEAVING and (self.ticks > LONGEST or not self._is_awaited())
        return await super().on_tick(counter)

    def _is_awaited(self) -> bool:
        """Return whether requests are arriving, on open connections or on those in the backlog."""
        waiting = select.poll()
        waiting.register(self.door, select.POLLIN)
        return bool(waiting.poll(0)) or self.room.has_arrivals()


def run(orders: Orders, limits: ServerLimits, address: Address, *, workers: int, watch: Watch = ignore) -> None:
    """Serve until a signal. Errors on the way are logged on standard error.

    Raises UserError if the port is taken or a model cannot be loaded.
    """
    with listening(address) as door:
        is_local = ipaddress.ip_address(door.getsockname()[0].partition("%")[0]).is_loopback
        if not address.keys.digests and not is_local:
            restriction = "--keys FILE restricts the server to clients with a key."
            watch(Notice(f"Anyone who can reach {address.host} may send requests. {restriction}"))
        pool = WorkerPool(orders, limits, ServerMetrics(), workers=workers)
        asyncio.run(_run(pool, address, door, watch))


async def _run(pool: WorkerPool, address: Address, door: socket.socket, watch: Watch) -> None:
    limits, metrics = pool.limits, pool.metrics
    room = Room(limits, metrics, workers=pool.count)
    asyncio.get_running_loop().set_exception_handler(room.handle)
    for remark in await pool.start():
        watch(Notice(remark, warning=True))
    service = Service(pool=pool, limits=limits, metrics=metrics, keys=address.keys)
    protocol: Any = functools.partial(Connection, room=room)
    config = uvicorn.Config(
        application(service, hosts=address.hosts), http=protocol, ws="none",
        log_level="error", access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=LAST, backlog=room.burst,
    )  # fmt: skip
    for model in pool.models:
        watch(Notice(f"{model['name']}: {model['kind']}, {model['length']} tokens"))
    try:
        await Server(config, service, door, room, watch).serve(sockets=[door])
    finally:
        await pool.close()


@contextlib.contextmanager
def listening(address: Address) -> Iterator[socket.socket]:
    """Open a socket that listens at the address; host names are resolved, and port 0 takes a free port.

    It listens before the models are loaded: a second server then fails early, and early clients wait in the backlog.
    Raises UserError if the address is not available.
    """
    if not 0 <= address.port < 1 << 16:  # the system would take another one
        raise UserError(f"--port must be from 0 to 65535, not {address.port}.", code="invalid-value")
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sets TCP_NODELAY on accepted sockets, but only if their protocol is TCP's number and not 0 (default).
        door = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unheard(address, error) from error
    with door:
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(socket_address)
            door.listen(QUEUE)
        except OSError as error:
            raise _unheard(address, error) from error
        yield door


def _unheard(address: Address, error: OSError) -> UserError:
    why = error.strerror or str(error)
    return UserError(
        f"The server cannot listen on {address.host}, port {address.port}: {why}.", code="address-unavailable"
    )
