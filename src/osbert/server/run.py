"""Runs a server: its socket, then the models, then requests until a signal; what was accepted is then finished."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import ipaddress
import select
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from osbert.errors import UserError
from osbert.runs.contract import Notice, Watch, ignore
from osbert.server.connections import Connection, Room
from osbert.server.hosts import Hosts
from osbert.server.http import Service, application
from osbert.server.keys import Keys
from osbert.server.limits import ServerLimits
from osbert.server.metrics import ServerMetrics
from osbert.server.pool import WorkerPool
from osbert.server.wire import Orders

LEAVING = 3
"""Fewest ticks (0.1 s, longer on a busy machine) between the last new connection and the end."""
LONGEST = 30
"""Most such ticks: the server then ends although requests may still arrive on open connections."""
QUEUE = 2048
"""Connections that the system keeps for the server until it takes them."""
LAST = 5
"""Seconds that a connection gets at the end to take its answer."""
SO_ATTACH_FILTER = 26
"""The number of this Linux socket option, which the socket module does not have."""
NO_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
"""A BPF program: load byte 13 of the TCP header, the flags; drop the packet if SYN is set, else keep all of it."""


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
        """Return the names that requests may have for it."""
        return Hosts(names=(*self.names, self.host), origins=self.origins)


class Server(uvicorn.Server):
    """uvicorn's server, which stops in our order: nothing more is taken on, all is answered, then it closes."""

    def __init__(self, config: uvicorn.Config, service: Service, door: socket.socket, room: Room, watch: Watch) -> None:
        """Serve at `door` with `config`; `room` has the open connections."""
        super().__init__(config)
        self.watch = watch
        self.service = service
        self.door = door
        self.room = room
        self.ticks = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and then give the address: its reader can send requests at once, and stop the server."""
        await super().startup(sockets)
        self.door.listen(QUEUE)  # again: asyncio sets a smaller backlog, the number that it accepts at a time
        host, port = self.door.getsockname()[:2]
        self.watch(Notice(f"http://{f'[{host}]' if ':' in host else host}:{port}"))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; at once on the second signal."""
        if self.service.stopped is not None:
            self.should_exit = self.force_exit = True
        self.service.stop()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end: when all is answered, and everyone who has connected by then as well.

        Ticks are counted, not seconds: a server that gets no processor time takes none from its clients.
        """
        if self.service.finished:
            if not self.ticks:
                ignore_newcomers(self.door)
            self.ticks += 1
            self.should_exit |= self.ticks > LEAVING and (self.ticks > LONGEST or not self._is_awaited())
        return await super().on_tick(counter)

    def _is_awaited(self) -> bool:
        """Return whether requests are on their way, on open connections or on those that wait to be accepted."""
        waiting = select.poll()
        waiting.register(self.door, select.POLLIN)
        return bool(waiting.poll(0)) or self.room.has_arrivals()


def ignore_newcomers(door: socket.socket) -> None:
    """Have the system ignore new attempts to connect; those under way and those in the queue can still be accepted.

    Closing a listening socket resets the connections in its queue, and between the last accept() and close() there is
    always time for one more. An ignored client tries again within a second, and is refused once the socket is closed.
    Other systems than Linux lack such filters: there connections are accepted until the end.
    """
    if sys.platform != "linux":  # the number may be another option's there
        return
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in NO_SYN))
    with contextlib.suppress(OSError):
        place = struct.pack("HP", len(NO_SYN), ctypes.addressof(program))
        door.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, place)


def run(orders: Orders, limits: ServerLimits, address: Address, *, workers: int, watch: Watch = ignore) -> None:
    """Serve until a signal; what goes wrong on the way is logged on standard error.

    Raises UserError when the port is taken or a model cannot be loaded.
    """
    with listening(address) as door:
        if not address.keys.digests and not _is_local(door):
            watch(Notice(f"Whoever reaches {address.host} may ask: --keys FILE lets in only those who have a key."))
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
    """Give a socket that listens at the address; a name is looked up, port 0 takes a free one.

    It listens at once, so that a second server finds the port taken before it has loaded its models; clients that come
    before these are loaded wait. Raises UserError when the address cannot be had.
    """
    if not 0 <= address.port < 1 << 16:  # the system would take another one
        raise UserError(f"--port {address.port}: a port is a number from 0 to 65535.", code="invalid-value")
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        door = socket.socket(family, kind)
    except OSError as error:
        raise _unheard(address, error) from error
    with door:
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(place)
            door.listen(QUEUE)
        except OSError as error:
            raise _unheard(address, error) from error
        yield door


def _unheard(address: Address, error: OSError) -> UserError:
    why = error.strerror or str(error)
    return UserError(
        f"The server cannot listen at {address.host}, port {address.port}: {why}.", code="address-unavailable"
    )


def _is_local(door: socket.socket) -> bool:
    return ipaddress.ip_address(door.getsockname()[0].partition("%")[0]).is_loopback
