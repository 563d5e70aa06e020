"""Callbacks for verbs that read or write files: progress bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from osbert.console.output import EventConsole, print_notices, say, watching
from osbert.corpus.build import BuildProgress
from osbert.runs.contract import Watch
from osbert.runs.tokenizer import VocabularyProgress
from osbert.terminal import open_console
from osbert.training.interruption import sigterm_as_exit
from osbert.training.tracking import duration

LEFT = TimeRemainingColumn(), TextColumn("left")
LINE_SECONDS = 30
"""Seconds between lines of progress, if there is no terminal."""


class VocabularyConsole(EventConsole):
    """Shows the training of a vocabulary: the bytes read, on standard error if it is a terminal."""

    def __init__(self) -> None:
        super().__init__()
        console = open_console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn(), *LEFT)
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("", total=None)

    def show(self, event: Any) -> None:
        if isinstance(event, VocabularyProgress):
            if not self.bar.live.is_started:
                self.enter_context(self.bar)
            done, total = event.done or None, event.total or None  # None leaves it as it was
            self.bar.update(self.task, description=event.phase, completed=done, total=total)
        else:
            self.close()
            print(event)


class CorpusConsole(EventConsole):
    """Shows the building of a corpus: a bar on standard error, apart from the report on standard output."""

    def __init__(self) -> None:
        super().__init__()
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), _Rate(), *LEFT)
        self.bar = Progress(*columns, console=open_console(stderr=True))

    def show(self, event: Any) -> None:
        if not isinstance(event, BuildProgress):
            say(open_console(), event)
            return
        if not self.bar.tasks:
            self.task = self.enter_context(self.bar).add_task(event.phase, total=None, text_bytes=0)
        elif event.phase != self.bar.tasks[0].description:
            self.bar.reset(self.task, description=event.phase, text_bytes=0)
        self.bar.update(self.task, completed=event.done, total=event.total, text_bytes=event.text_bytes)


class _Rate(ProgressColumn):
    """Megabytes of text per second since the phase began."""

    def render(self, task: Task) -> Text:
        """Return the rate; empty in phases that read no text."""
        if not task.fields["text_bytes"] or not task.elapsed:
            return Text("")
        return Text(f"{task.fields['text_bytes'] / 1e6 / task.elapsed:.1f} MB/s")


@dataclass
class _Pace:
    """The pace of a part. `before`: what was done at its first event, in a resumed run by the one before."""

    before: int
    seconds: float = 0.0


@contextmanager
def showing_progress(what: str, stream: TextIO | None = None) -> Iterator[Watch]:
    """Yield a `watch` that prints notices and shows progress, `done` of `count`: a bar on a terminal, else lines.

    `what`: what is counted, unless an event has a `what` of its own: each such part has its own rate. `stream`: where
    notices go, as for `print_notices`. SIGTERM ends the block by SystemExit, so that the work says what it keeps.
    """
    console, notices = open_console(stderr=True), print_notices(stream)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=None)
    last = line_time = time.monotonic()
    paces: dict[str, _Pace] = {}

    def show(event: Any) -> None:
        nonlocal last, line_time
        notices(event)
        if not hasattr(event, "done"):
            return
        part, now = getattr(event, "what", what), time.monotonic()
        # The first event of a part starts its clock: what came before, such as loading, is none of its time.
        pace = paces.setdefault(part, _Pace(before=event.done))
        pace.seconds += now - last if event.done > pace.before else 0
        last = now
        if console.is_terminal:
            bar.start()
            if bar.tasks[0].description != part:
                bar.reset(task, description=part, total=event.count, completed=event.done)
            bar.update(task, total=event.count, completed=event.done)
        elif now - line_time >= LINE_SECONDS and pace.before < event.done < event.count:
            line_time, left = now, pace.seconds * (event.count - event.done) / (event.done - pace.before)
            print(f"{event.done:,} of {event.count:,} {part}, {duration(left)} left", file=sys.stderr)

    try:
        with sigterm_as_exit():
            yield watching(show, stream=stream)
    finally:
        bar.stop()
