"""The server's log: equal lines are written at most once a minute."""

from __future__ import annotations

import sys
import time

SECONDS = 60.0
"""Seconds before the same line is written again."""
MOST = 1_000
"""Most lines that are remembered. Lines may contain text of requests, so there is no bound on their number."""


class Log:
    """A log on standard error."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}

    def write(self, line: str) -> None:
        """Write a line, unless it was written within the last minute."""
        now = time.monotonic()
        if now < self._written.get(line, -SECONDS) + SECONDS:
            return
        self._written.pop(line, None)  # so that the first is the oldest
        self._written[line] = now
        if len(self._written) > MOST:
            del self._written[next(iter(self._written))]
        self.write_again(line)

    def write_again(self, line: str) -> None:
        """Write a line, even if it has just been written."""
        print(line, file=sys.stderr, flush=True)
