"""Limits of the server: sizes of requests, the queue, time-outs, and tokens in a pass."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.errors import Problems
from osbert.server.calls import MOST_BEAMS, MOST_PIECES


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """The limits of a server. A request beyond them is refused, never truncated."""

    queue: int = 256
    """Most accepted requests without an answer; further ones are refused with 429."""
    body: int = 1_000_000
    """Most bytes of a request."""
    texts: int = 128
    """Most texts, pairs or records in a request."""
    characters: int = 50_000
    """Most characters of a text."""
    deadline: float = 30.0
    """Seconds after which a request is answered with 504. A request can set fewer by its header X-Deadline."""
    most_pieces: int = MOST_PIECES
    """Most pieces of a generated text."""
    most_beams: int = MOST_BEAMS
    """Most beams in generation."""
    connections: int = 1000
    """Most open connections; fewer if the limit on open files (ulimit -n) requires it."""
    idle: float = 10.0
    """Seconds that a client may take for the header of its next request, or for reading its answer."""
    batch_tokens: int = 1024
    """Most tokens in one pass of a model. A single longer text, or its windows, is read alone."""
    wait: float = 4.0
    """Most milliseconds that a request waits for others, while the model is idle; a client that is alone waits for
    none."""
    patience: float = 120.0
    """Seconds without a message after which a worker is killed, and another takes over its requests."""

    @property
    def values(self) -> int:
        """Most values in the JSON of a request, lists and objects included. Many small values cost time, not bytes."""
        return 20_000 + 8 * self.texts

    def check(self) -> None:
        """Raise UserError that lists every limit out of range."""
        problems = Problems(heading="The server cannot be started with these limits")
        sizes = ("queue", "body", "texts", "characters", "most_pieces", "most_beams", "connections", "batch_tokens")
        for name in sizes:
            if getattr(self, name) < 1:
                problems.add(
                    f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}", code="invalid-value"
                )
        for name in ("deadline", "idle", "patience"):
            if not 0 < (seconds := getattr(self, name)) < 1e6:
                problems.add(f"--{name} must be a number of seconds above 0, not {seconds:g}", code="invalid-value")
        if not 0 <= self.wait <= 10_000:
            problems.add(f"--wait must be from 0 to 10000 milliseconds, not {self.wait:g}", code="invalid-value")
        problems.stop_if_any()
