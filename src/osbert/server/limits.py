"""What a server takes on: how large a request may be, how many wait, how long, and how much is read in one pass."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.errors import Problems

MOST_PIECES, MOST_BEAMS = 512, 8
"""The most pieces, and beams, of a text that is written, unless a server has others."""


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """The bounds of a server; what is beyond them is refused, never cut."""

    queue: int = 256
    """Most requests that are accepted and not answered yet; further ones are refused with 429."""
    body: int = 1_000_000
    """Most bytes of a request."""
    texts: int = 128
    """Most texts, pairs or records in a request."""
    characters: int = 50_000
    """Most characters of a text."""
    deadline: float = 30.0
    """Seconds after which a request is given up (504); a request can ask for fewer by its header X-Deadline."""
    most_pieces: int = MOST_PIECES
    """Most pieces that are written for a text."""
    most_beams: int = MOST_BEAMS
    """Most beams of a text that is written."""
    connections: int = 1000
    """Most connections at a time; fewer where the limit on open files leaves less room."""
    idle: float = 10.0
    """Seconds that a connection may take for the header of its next request, or leave an answer untaken."""
    batch_tokens: int = 1024
    """Most tokens that a model reads in one pass; a single longer text, or its windows, is read alone."""
    wait: float = 4.0
    """Milliseconds that a request waits at most for others to be read with, while the model is idle."""
    patience: float = 120.0
    """Seconds after which a worker that gives no sign of life is ended, and another takes over its requests."""

    @property
    def values(self) -> int:
        """Return the most values of a request's JSON, all lists and objects counted: they cost time, not bytes."""
        return 20_000 + 8 * self.texts

    def check(self) -> None:
        """Raise UserError when one of them is out of range."""
        problems = Problems(heading="The server cannot be started with these limits")
        for name in (
            "queue",
            "body",
            "texts",
            "characters",
            "most_pieces",
            "most_beams",
            "connections",
            "batch_tokens",
        ):
            if getattr(self, name) < 1:
                problems.add(f"--{name.replace('_', '-')} {getattr(self, name)}: at least 1", code="invalid-value")
        for name in ("deadline", "idle", "patience"):
            if not 0 < (seconds := getattr(self, name)) < 1e6:
                problems.add(f"--{name} {seconds:g}: a number of seconds above 0", code="invalid-value")
        if not 0 <= self.wait <= 10_000:
            problems.add(f"--wait {self.wait:g}: from 0 to 10000 milliseconds", code="invalid-value")
        problems.stop_if_any()
