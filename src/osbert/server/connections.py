"""Connections: strict HTTP/1.1, time-outs for idle clients, and a maximum number below the limit on open files.

uvicorn's protocol has a time-out only for a connection that has had one response. Here every connection has a time-out
for the header of its next request and for reading its response. At the maximum, a new connection closes the one that
has been silent longest, so that silent sockets, however many, do not lock out other clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import re
import resource
import select
import termios
from collections.abc import Callable
from http import HTTPStatus
from itertools import islice
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from osbert.errors import UserError
from osbert.server.calls.schemas import Refusal
from osbert.server.limits import ServerLimits
from osbert.server.log import Log
from osbert.server.metrics import ServerMetrics

SLICE = 1 << 11
"""Bytes per read. A chunked body can have a chunk in every six bytes, and each chunk takes time in the event loop."""
RATE = 50_000
"""Lowest rate, in bytes per second, at which a client must read its response."""
BURST = 32
"""Most connections that asyncio accepts in one round of its loop; fewer under a low limit on open files."""
OWN = 32
"""Open files that the server itself needs; each worker needs PER_WORKER more while it starts."""
PER_WORKER = 8
FEWEST = 8
"""Fewest connections with which the server starts."""
LOOKED_AT = 16
"""Connections that are looked at for a silent one to close."""
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PROBING = 0.2
"""Seconds between two looks at whether a client that has ended its side is gone altogether."""
LINGER = 2.0
"""Seconds for which a client may go on sending after its response, before the connection is closed."""
HEAD_END = re.compile(rb"\n\r?\n")
FOLDED = re.compile(rb"\n[ \t]")
LENGTH = re.compile(rb"^content-length[ \t]*:([^\n]*)", re.IGNORECASE | re.MULTILINE)


class Room:
    """The open connections, their maximum number, and which one to close at that maximum."""

    def __init__(self, limits: ServerLimits, metrics: ServerMetrics, *, workers: int) -> None:
        """Compute the maximum. Raises UserError if the limit on open files leaves fewer than FEWEST connections."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        unlimited = files == resource.RLIM_INFINITY
        self.idle = limits.idle
        self.burst = BURST if unlimited else max(1, min(BURST, files // 16))
        self.most = limits.connections
        if not unlimited:
            # asyncio closes a connection two rounds of its loop after it has accepted one too many
            needed = len(os.listdir("/dev/fd")) + OWN + PER_WORKER * workers + 3 * self.burst
            self.most = min(self.most, files - needed)
            if files - needed < FEWEST:
                raise UserError(
                    f"The limit on open files is {files}, but the server needs at least {needed + FEWEST}: raise it "
                    "with ulimit -n.",
                    code="too-few-open-files",
                )
        self.metrics = metrics
        self.open: set[Connection] = set()
        self.silent: dict[Connection, None] = {}  # connections with an incomplete request, the longest silent first
        self._log = Log()
        metrics.connections.set_function(lambda: len(self.open))

    def enter(self, connection: Connection) -> bool:
        """Add a connection and return whether it stays open. Above the maximum, close the longest silent one."""
        self.open.add(connection)
        self.silent[connection] = None
        if len(self.open) <= self.most:
            return True
        self.say(
            f"{self.most} connections are open, which is the maximum (--connections, ulimit -n): each new one "
            "closes the one that has been silent longest."
        )
        # The request of a busy client may have arrived without being read yet: such a connection is not silent.
        # Without a silent one among the first LOOKED_AT, the new connection itself is closed.
        longest = next(
            (candidate for candidate in islice(self.silent, LOOKED_AT) if not candidate.has_arrived()), connection
        )
        longest.cut()
        return longest is not connection

    def leave(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.open.discard(connection)
        self.silent.pop(connection, None)

    def has_arrivals(self) -> bool:
        """Return whether requests are on their way: bytes of one, or a connection that has not sent its first yet."""
        return any(
            (connection.cycle is None or connection.has_begun()) and not connection.transport.is_closing()
            for connection in self.open
        )

    def say(self, line: str) -> None:
        """Write a line to the log, at most once a minute."""
        self._log.write(f"osbert serve: {line}")

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error in the event loop. A lack of open files for new connections is one line a minute."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
            self.say(f"connections cannot be accepted: {error.strerror}; the server keeps trying.")
        else:
            loop.default_exception_handler(context)


class StrictParser(h11.Connection):
    """A parser that refuses requests whose end a proxy in front of it could see elsewhere (request smuggling).

    h11 accepts folded header lines, Transfer-Encoding beside Content-Length, and the same Content-Length twice.
    """

    fault: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        """Return h11's next event. Raises h11.RemoteProtocolError for ambiguous requests, too."""
        try:
            if self.their_state is h11.IDLE:
                _check_head(self.trailing_data[0])
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check_framing(event)
        except h11.RemoteProtocolError as fault:
            self.fault = fault
            raise
        return event


class LingeringTransport:
    """The transport that uvicorn sees: `close` first lets the client finish sending.

    A socket that is closed with unread bytes resets the connection, and the client may lose the response (RFC 9112,
    section 9.6). Everything else is passed on to the real transport.
    """

    def __init__(self, wire: asyncio.Transport, unfinished: Callable[[], bool]) -> None:
        """Close `wire` in two steps if `unfinished` says then that the client is still sending."""
        self.wire = wire
        self.unfinished = unfinished
        self.lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wire, name)

    def is_closing(self) -> bool:
        """Return whether nothing more can be written."""
        return self.lingers or self.wire.is_closing()

    def close(self) -> None:
        """Close now, or end this side and close when the client does, or LINGER seconds after the response."""
        if self.is_closing():
            return
        if not self.unfinished():
            self.wire.close()
            return
        self.lingers = True
        with contextlib.suppress(OSError):  # the client may have reset the connection
            self.wire.write_eof()
        self.wire.resume_reading()
        seconds = LINGER + self.wire.get_write_buffer_size() / RATE
        asyncio.get_running_loop().call_later(seconds, self.wire.abort)


class Connection(H11Protocol, asyncio.BufferedProtocol):
    """uvicorn's protocol with time-outs and small reads."""

    buffer = bytearray(SLICE)  # shared by all connections: every read is copied out at once

    def __init__(self, *given: Any, room: Room, **named: Any) -> None:
        """Use `room`; the other arguments are uvicorn's."""
        super().__init__(*given, **named)
        self.conn = StrictParser(h11.SERVER, self.config.h11_max_incomplete_event_size or 1 << 14)
        self.room = room
        self.ended = False  # whether the client has ended its side
        self.patience = room.idle  # seconds that the client may still take longer for its answer than at RATE
        self.full = (0.0, 0)  # when writing was paused last, and the bytes that waited then
        self.timers: dict[str, asyncio.TimerHandle] = {}

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer for the next read."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process the `nbytes` bytes in the buffer."""
        if not self.transport.is_closing():
            self.data_received(bytes(self.buffer[:nbytes]))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request, or close at once."""
        self.wire = transport
        super().connection_made(LingeringTransport(transport, self.is_unfinished))  # type: ignore[arg-type]
        if self.room.enter(self):
            self._time("request", self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection and stop its timers."""
        self.room.leave(self)
        for name in tuple(self.timers):
            self._stop(name)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the connection stays open after the client has ended its side: as long as answers are due.

        A client that is gone has sent the same. It is found by sending 100 (Continue), which any client ignores (RFC
        9110, section 15.2.1): the system of one that is gone answers with a reset.
        """
        self.ended = True
        if not self.is_answering():
            return False
        if self.conn.our_state is h11.SEND_RESPONSE and self.conn.their_http_version != b"1.0":
            probe = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self.wire.write(self.conn.send(probe) or b"")
        self._look_for_reset()
        return True

    def handle_events(self) -> None:
        """Process the received events. The timer for the next request stops while the server answers one."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop("request")
            if not self.cycle.more_body:
                self.room.silent.pop(self, None)

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        # Removed and added again, the connection becomes the last of `silent`, which keeps the order of insertion.
        if self in self.room.open and not self.transport.is_closing():
            self.room.silent.pop(self, None)
            self.room.silent[self] = None
            self._time("request", self._late)
        self.patience = self.room.idle
        super().on_response_complete()
        if self.ended and not self.is_answering():
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the timer for the client to read the response."""
        super().pause_writing()
        self.full = self.loop.time(), self.transport.get_write_buffer_size()
        self._time("answer", self.cut, self.patience)

    def resume_writing(self) -> None:
        """Stop that timer. What the client took longer than at RATE comes off its patience for the whole response."""
        super().resume_writing()
        self._stop("answer")
        begin, size = self.full
        taken = size - self.transport.get_write_buffer_size()
        self.patience -= max(0.0, self.loop.time() - begin - taken / RATE)

    def has_arrived(self) -> bool:
        """Return whether there are bytes that the event loop has not read yet."""
        socket = self.transport.get_extra_info("socket")
        try:
            # FIONREAD gives the number of unread bytes as a C int; any() of its 4 bytes is true if it is not 0.
            return any(fcntl.ioctl(socket.fileno(), termios.FIONREAD, bytes(4)))
        except OSError:
            return False

    def has_begun(self) -> bool:
        """Return whether a part of the next request is here."""
        return bool(self.conn.trailing_data[0]) or self.has_arrived()

    def is_answering(self) -> bool:
        """Return whether the answer to a complete request is due."""
        # `cycle` is uvicorn's current request and response; None before the first request.
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def is_unfinished(self) -> bool:
        """Return whether the client is still sending, as far as one can see."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR) or self.has_begun()

    def cut(self) -> None:
        """Close the connection at once, even during a response.

        Without a pending response it ends as connections do, not by a reset: a client that keeps connections for later
        requests then sees the end before it uses this one again.
        """
        self.room.metrics.cut.inc()
        self.room.leave(self)  # now: the loop closes it only after it has accepted others
        if self.wire.get_write_buffer_size():
            self.wire.abort()
        else:
            self.wire.close()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with a refusal in the server's own format that contains the parser's reason."""
        fault = self.conn.fault if isinstance(self.conn, StrictParser) else None
        self._refuse(Refusal(fault.error_status_hint if fault else 400, f"{msg} {fault or ''}".strip()))

    def _late(self) -> None:
        pending = self.transport.get_write_buffer_size()
        # The bytes came in time, but the event loop was too busy to read them: the client gets another period.
        if not pending and not self.conn.trailing_data[0] and self.has_arrived():
            self._time("request", self._late)
        elif pending or not self.conn.trailing_data[0]:
            self.cut()
        else:
            self.room.metrics.cut.inc()
            self._refuse(Refusal(408, f"The request's header did not arrive within {self.room.idle:g} seconds."))

    def _look_for_reset(self) -> None:
        """Drop the connection if the client has reset it, else look again PROBING seconds later.

        asyncio does not: it no longer reads from a connection whose end it has read.
        """
        self._stop("reset")  # the end is read again after a pause of reading
        poll = select.poll()
        poll.register(self.wire.get_extra_info("socket"), 0)  # 0: errors alone
        if poll.poll(0):
            self.wire.abort()
        else:
            self.timers["reset"] = self.loop.call_later(PROBING, self._look_for_reset)

    def _refuse(self, refusal: Refusal) -> None:
        """Send a refusal, unless a response has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(refusal.content()).encode()
            headers = [
                ("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")
            ]  # fmt: skip
            for event in (
                h11.Response(
                    status_code=refusal.status, headers=headers, reason=HTTPStatus(refusal.status).phrase.encode()
                ),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:  # the handler of the request learns that the client is gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _time(self, name: str, act: Callable[[], None], patience: float | None = None) -> None:
        """Call `act` after `patience` (None: the idle time-out) and the time to read the pending response at RATE."""
        self._stop(name)
        seconds = (self.room.idle if patience is None else patience) + self.transport.get_write_buffer_size() / RATE
        self.timers[name] = self.loop.call_later(seconds, act)

    def _stop(self, name: str) -> None:
        timer = self.timers.pop(name, None)
        if timer:
            timer.cancel()


def _check_head(received: bytes) -> None:
    # `received` may be a part of the header: what it has is checked, and the rest with the next read.
    end = HEAD_END.search(received)
    head = received[: end.start()] if end else received
    if FOLDED.search(head):
        raise h11.RemoteProtocolError("Folded header lines are not allowed.")
    # "Content-Length: 5, 5" is the same header twice, joined by a proxy.
    lengths = LENGTH.findall(head)
    if len(lengths) > 1 or any(b"," in length for length in lengths):
        raise h11.RemoteProtocolError("The request has more than one Content-Length.")


def _check_framing(request: h11.Request) -> None:
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" not in names:
        return
    if b"content-length" in names:
        raise h11.RemoteProtocolError("The request has both Content-Length and Transfer-Encoding.")
    # HTTP/1.0 has no chunked bodies: an old proxy would see the end of the request elsewhere.
    if request.http_version < b"1.1":
        raise h11.RemoteProtocolError("Transfer-Encoding needs HTTP/1.1.")
