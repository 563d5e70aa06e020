"""Prints the events of a run for people; output.py handles --json and --quiet."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TextIO

from osbert.console.output import watching
from osbert.runs.contract import Notice, Watch
from osbert.terminal import one_line

if TYPE_CHECKING:
    from rich.console import Console


def print_notices(stream: TextIO | None = None) -> Watch:
    """Return a `watch` that prints notices to a stream; by default warnings to standard error, others to standard
    output."""

    def print_notice(event: Any) -> None:
        if isinstance(event, Notice):
            usual = sys.stderr if event.warning else sys.stdout
            print(one_line(line_of(event)), file=stream or usual, flush=True)

    return watching(print_notice, stream=stream)


def print_events() -> Watch:
    """Return a `watch` that prints every event as text."""
    return watching(lambda event: print(event, flush=True))


class EventConsole(ExitStack):
    """A `watch` that passes events to `show`, which starts a bar or table at the first event that needs one.

    With --json and --quiet `show` is not called.
    """

    def __init__(self) -> None:
        """Take the current output."""
        super().__init__()
        self.watch = watching(self.show)

    def __call__(self, event: Any) -> None:
        """Handle one event."""
        self.watch(event)

    def show(self, event: Any) -> None:
        """Print one event for people."""
        print(event, flush=True)


def line_of(event: object) -> str:
    """Return an event as text; a warning gets the prefix "warning: "."""
    return f"warning: {event}" if isinstance(event, Notice) and event.warning else str(event)


def say(console: Console, event: object) -> None:
    """Print an event or text literally: rich's markup, highlighting, emoji and wrapping are off."""
    console.print(line_of(event), markup=False, highlight=False, emoji=False, soft_wrap=True)
