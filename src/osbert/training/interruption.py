"""Ctrl-C and SIGTERM as a wish to stop after the step at hand, so that a checkpoint can be written first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

STATUS = 128
"""What a shell adds to a signal's number for the exit status of what it ended."""


class StopRequest(Exception):
    """Work was stopped in good order because of a wish to stop."""


@contextlib.contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Make SIGTERM raise SystemExit inside the block, so that a command that waits for others can end them first.

    Outside the main thread, where signals cannot be caught, it does nothing.
    """

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(STATUS + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interruption:
    """`with Interruption() as wish:` makes the first signal set `wish.signal`; a second Ctrl-C interrupts at once.

    Inside `with wish.at_once():` a wish raises StopRequest: for long work that changes nothing and can be done again.
    Blocks may be nested. Outside the main thread, where signals cannot be caught, it does nothing.
    """

    def __init__(self) -> None:
        """Nothing is caught before the block begins."""
        self.signal: signal.Signals | None = None
        self._before: list[dict[signal.Signals, Any]] = []
        self._patient = True

    def __enter__(self) -> Interruption:
        """Begin to catch."""
        caught = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        self._before.append({number: signal.signal(number, self._catch) for number in caught})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the signals as they were."""
        for number, handler in self._before.pop().items():
            signal.signal(number, handler)

    @property
    def status(self) -> int:
        """Return the exit status of work that a signal stopped before its end, 130 or 143; 0 without a signal."""
        return STATUS + self.signal if self.signal else 0

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a wish raise StopRequest inside the block, one that has come before as well."""
        if self.signal is not None:
            raise StopRequest
        self._patient = False
        try:
            yield
        finally:
            self._patient = True

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        if not self._patient:
            self._patient = True  # once: what follows from it must not be broken off
            raise StopRequest
