"""Messages between the server and its workers, pickled over a socket. Both ends are osbert's own processes."""

from __future__ import annotations

import json
import pickle
import select
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.runs.similarity.served_search import SearchedFiles
from osbert.server.calls.models import ModelFolder, WritingLimits
from osbert.server.calls.schemas import Refusal
from osbert.tasks.edges import Edge

HEAD = struct.Struct("<I")
"""Header of a message: the length of the pickled message, 4 bytes, little endian."""
CHUNK = 1 << 18
"""Bytes per read."""
SLICE = 1 << 18
"""Most bytes of an answer's body in one message: the server's event loop copies each message as a whole."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The configuration of a worker, its first message. `threads` 0: torch's default; `wait`: seconds."""

    runs: Sequence[ModelFolder]
    opening: Opening = CAREFUL
    device: str = "auto"
    threads: int = 0
    batch_tokens: int = 1024
    wait: float = 0.004
    writing: WritingLimits = field(default_factory=WritingLimits)
    searched: SearchedFiles | None = None


class Dispatch(NamedTuple):
    """A request for a worker. Times are seconds of time.monotonic, which all processes of a machine share.

    `alone`: whether it must not share a pass, because a worker died in a pass with it.
    """

    number: int
    call: str
    request: dict[str, Any]
    arrived: float
    deadline: float
    alone: bool = False


class Cancellation(NamedTuple):
    """The client of this request has left, or its deadline has passed."""

    number: int


class Nudge(NamedTuple):
    """A ping: the worker answers with an empty PassReport after its current pass."""


class LoadReport(NamedTuple):
    """The models are loaded. `models`: their entries in /v1/models. `remarks`: oddities of their folders.

    `edges`: the edges of models that declare their own call.
    """

    models: list[dict[str, Any]]
    remarks: list[str]
    edges: Sequence[Edge] = ()


class LoadFailure(NamedTuple):
    """The models cannot be loaded. `message` is for the user; `model`: the name of the faulty one, "" if unknown."""

    message: str
    model: str = ""
    code: str = "child-failed"

    @classmethod
    def of(cls, error: UserError | OSError, model: str = "") -> LoadFailure:
        """Return the failure with the message and the code of an error."""
        return cls(str(error), model, getattr(error, "code", "not-readable"))


class WorkerLoadError(Exception):
    """Raised if a worker cannot load a model."""

    def __init__(self, failed: LoadFailure) -> None:
        super().__init__(failed.message)
        self.failed = failed


class WorkerAnswer(NamedTuple):
    """The answer to a request: an HTTP status, and the body as JSON, or what of it is behind its AnswerSlices."""

    number: int
    status: int
    body: bytes


class AnswerSlice(NamedTuple):
    """The next bytes of the body of an answer. A large body is sent in slices before the PassReport with its end."""

    number: int
    body: bytes


class WrittenPart(NamedTuple):
    """A part of a streamed answer, as JSON; `part_index`: its index among the parts, from 0."""

    number: int
    part_index: int
    body: bytes


class PassStart(NamedTuple):
    """The requests of a pass that begins. If the worker dies before the next PassReport, they are suspects."""

    numbers: list[int]


class PassReport(NamedTuple):
    """A finished pass: its answers and parts of answers, and its figures for the metrics."""

    answers: list[WorkerAnswer]
    model: str = ""
    items: int = 0
    tokens: int = 0
    seconds: float = 0.0
    parts: Sequence[WrittenPart] = ()


def in_slices(report: PassReport) -> Iterator[AnswerSlice | PassReport]:
    """Yield the messages for a report: all slices of the bodies of its answers but the last, and the report with those.

    >>> answer = WorkerAnswer(1, 200, bytes(2 * SLICE + 5))
    >>> [len(one.body) if isinstance(one, AnswerSlice) else one for one in in_slices(PassReport([answer]))][:2]
    [262144, 262144]
    """
    ends = []
    for answered in report.answers:
        last = (len(answered.body) - 1) // SLICE * SLICE
        for begin in range(0, last, SLICE):
            yield AnswerSlice(answered.number, answered.body[begin : begin + SLICE])
        ends.append(answered._replace(body=answered.body[last:]))
    yield report._replace(answers=ends)


def frame(message: Any) -> bytes:
    """Return a message as bytes, with its header."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(body)) + body


def answer_refusal(number: int, refusal: Refusal) -> WorkerAnswer:
    """Return the answer to a refused request."""
    return WorkerAnswer(number, refusal.status, json.dumps(refusal.content(), ensure_ascii=False).encode())


@dataclass(kw_only=True)
class Wire:
    """The worker's socket to the server, read with a time-out."""

    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)

    def send(self, message: Any) -> None:
        """Send a message. Raises OSError if the server has ended."""
        self.socket.sendall(frame(message))

    def receive(self, wait: float | None) -> list[Any]:
        """Return all complete messages that have arrived; wait at most `wait` seconds for bytes (None: for ever).

        Raises EOFError if the server has ended.
        """
        while select.select([self.socket], [], [], wait)[0]:
            part = self.socket.recv(CHUNK)
            if not part:
                raise EOFError
            self.buffer += part
            # From here on only what has already arrived is read.
            wait = 0
        messages = []
        while len(self.buffer) >= HEAD.size:
            end = HEAD.size + HEAD.unpack_from(self.buffer)[0]
            if len(self.buffer) < end:
                break
            messages.append(pickle.loads(bytes(self.buffer[HEAD.size : end])))
            del self.buffer[:end]
        return messages
