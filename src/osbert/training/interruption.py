"""Treats Ctrl-C and SIGTERM as a request to stop after the current step, so that a checkpoint can be written first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

STATUS = 128
"""Shells report the exit status 128 + n for a process that signal n ended."""


class StopRequest(Exception):
    """Work was stopped in good order by a request to stop."""


@contextlib.contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Make SIGTERM raise SystemExit inside the block, so that a command can first end the processes it waits for.

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

    Inside `with wish.at_once():` a signal raises StopRequest: for long work without side effects that can be repeated.
    Blocks may be nested. Outside the main thread, where signals cannot be caught, it does nothing.
    """

    def __init__(self) -> None:
        """No signal is caught before the block begins."""
        self.signal: signal.Signals | None = None
        self._before: list[dict[signal.Signals, Any]] = []
        self._patient = True

    def __enter__(self) -> Interruption:
        caught = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        # A stack, because blocks may be nested.
        self._before.append({number: signal.signal(number, self._catch) for number in caught})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.pop().items():
            signal.signal(number, handler)

    @property
    def status(self) -> int:
        """Return the exit status of work that a signal stopped before its end, 130 or 143; 0 without a signal."""
        return STATUS + self.signal if self.signal else 0

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let signals raise StopRequest inside the block, also one that came before it."""
        if self.signal is not None:
            raise StopRequest
        self._patient = False
        try:
            yield
        finally:
            self._patient = True

    def _catch(self, number: int, frame: FrameType | None) -> None:
        # The second Ctrl-C does not wait for the end of the step.
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        if not self._patient:
            self._patient = True  # once: what follows from it must not be broken off
            raise StopRequest
