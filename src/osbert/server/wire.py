"""What passes between the server and its workers: pickled messages over a socket, both ends being ours."""

from __future__ import annotations

import json
import pickle
import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.server.models import ModelFolder, WritingLimits
from osbert.server.schemas import Refusal
from osbert.tasks.edges import Edge

HEAD = struct.Struct("<I")
"""A message is its length in four bytes, and then itself, pickled."""
CHUNK = 1 << 18
"""Bytes that are read at a time."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a worker gets at its start; `threads` 0 is as many as torch takes by itself."""

    runs: Sequence[ModelFolder]
    opening: Opening = CAREFUL
    device: str = "auto"
    threads: int = 0
    batch_tokens: int = 1024
    wait: float = 0.004
    writing: WritingLimits = field(default_factory=WritingLimits)


class Dispatch(NamedTuple):
    """A request on its way to a worker; times are in seconds of time.monotonic, which is common to all processes.

    `alone`: whether it is read with no other, because a worker died over it and others.
    """

    number: int
    call: str
    asked: dict[str, Any]
    arrived: float
    deadline: float
    alone: bool = False


class Cancellation(NamedTuple):
    """A request that nobody waits for any more."""

    number: int


class Nudge(NamedTuple):
    """A request for a sign of life: an empty PassReport, as soon as no pass is going on."""


class LoadReport(NamedTuple):
    """The models are loaded; `models` as /v1/models lists them, `remarks`: what was odd about their folders.

    `edges`: those of their kinds that declare a call of their own.
    """

    models: list[dict[str, Any]]
    remarks: list[str]
    edges: Sequence[Edge] = ()


class LoadFailure(NamedTuple):
    """The models cannot be loaded, in words for the user; `model`: which one of them, where that is known."""

    message: str
    model: str = ""
    code: str = "child-failed"

    @classmethod
    def of(cls, error: UserError | OSError, model: str = "") -> LoadFailure:
        """Return the failure that an error is, with the error's code."""
        return cls(str(error), model, getattr(error, "code", "not-readable"))


class WorkerLoadError(Exception):
    """A worker that cannot load a model."""

    def __init__(self, failed: LoadFailure) -> None:
        """Take the reason."""
        super().__init__(failed.message)
        self.failed = failed


class WorkerAnswer(NamedTuple):
    """The answer to a request: an HTTP status, and the body as JSON."""

    number: int
    status: int
    body: bytes


class WrittenPart(NamedTuple):
    """A part of an answer that is being written, as JSON; `place`: how many parts came before it."""

    number: int
    place: int
    body: bytes


class PassStart(NamedTuple):
    """What a worker is about to work on, so that it is known what it died over; over by the next PassReport."""

    numbers: list[int]


class PassReport(NamedTuple):
    """A pass of a model, and the answers, or parts of answers, that it brought about."""

    answers: list[WorkerAnswer]
    model: str = ""
    items: int = 0
    tokens: int = 0
    seconds: float = 0.0
    parts: Sequence[WrittenPart] = ()


def framed(message: Any) -> bytes:
    """Return a message as it travels."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(body)) + body


def refused(number: int, refusal: Refusal) -> WorkerAnswer:
    """Return the answer to a request that is not fulfilled."""
    return WorkerAnswer(number, refusal.status, json.dumps(refusal.content(), ensure_ascii=False).encode())


@dataclass(kw_only=True)
class Wire:
    """The socket to the server, read without waiting beyond a given time."""

    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)

    def send(self, message: Any) -> None:
        """Send a message; raises OSError when the server is gone."""
        self.socket.sendall(framed(message))

    def receive(self, wait: float | None) -> list[Any]:
        """Return all messages that have come, after at most `wait` seconds for the first, None for as long as it takes.

        Raises EOFError when the server is gone.
        """
        while select.select([self.socket], [], [], wait)[0]:
            part = self.socket.recv(CHUNK)
            if not part:
                raise EOFError
            self.buffer += part
            wait = 0
        messages = []
        while len(self.buffer) >= HEAD.size:
            end = HEAD.size + HEAD.unpack_from(self.buffer)[0]
            if len(self.buffer) < end:
                break
            messages.append(pickle.loads(bytes(self.buffer[HEAD.size : end])))
            del self.buffer[:end]
        return messages
