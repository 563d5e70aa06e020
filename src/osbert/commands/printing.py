"""What a verb prints of the events of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from osbert.runs.contract import Notice, Watch
from osbert.terminal import one_line, open_console

if TYPE_CHECKING:
    from rich.console import Console


def print_notices(stream: TextIO | None = None) -> Watch:
    """Return a `watch` that prints notices to a stream. Without one: warnings to standard error, others to output."""

    def printed(event: Any) -> None:
        if isinstance(event, Notice):
            usual = sys.stderr if event.warning else sys.stdout
            print(one_line(event.text), file=stream or usual, flush=True)

    return printed


def say(console: Console, event: object) -> None:
    """Print a notice, or any text, as it is."""
    console.print(str(event), markup=False, highlight=False, emoji=False, soft_wrap=True)


@contextmanager
def showing_progress(what: str) -> Iterator[Watch]:
    """Give a `watch` that prints notices and, on a terminal, shows a bar of events that are `done` of a `count`."""
    from rich.progress import Progress

    console = open_console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=None)
    notices = print_notices()

    def watch(event: Any) -> None:
        notices(event)
        if hasattr(event, "done"):
            bar.start()
            bar.update(task, total=event.count, completed=event.done)

    try:
        yield watch
    finally:
        bar.stop()
