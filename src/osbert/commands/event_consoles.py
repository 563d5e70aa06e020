"""What verbs pass as `watch`: each prints the events of one kind of run, and shows a bar where there is a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

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

from osbert.commands.printing import print_notices, say
from osbert.corpus.build import BuildProgress
from osbert.runs.contract import Watch
from osbert.runs.events import Measurement, TrainingStart
from osbert.runs.study.runner import TrialEnd
from osbert.runs.tokenizer import VocabularyProgress
from osbert.terminal import open_console
from osbert.training.tracking import BEFORE, HELD_OUT, duration, summary, values

if TYPE_CHECKING:
    from rich.console import Console

    from osbert.training.progress import Progress as StepProgress


class ProgressLine(ExitStack):
    """Shows a run on a console: a bar that moves on a terminal, else a line of text for each line of metrics."""

    def __init__(self, console: Console, *, processor: str, done: int, steps: int) -> None:
        """Show `steps` steps, of which `done` were done before; `processor` is shown as it is."""
        super().__init__()
        self.console = console
        self.processor = processor
        self.done = done
        self.steps = steps
        self.started = time.monotonic()
        self.text = ""
        columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
        shown = Progress(
            *columns, console=console, refresh_per_second=2, transient=True, disable=not console.is_terminal
        )
        self.task = shown.add_task("", total=steps, completed=done)
        self.bar = self.enter_context(shown)

    def step(self, progress: StepProgress, line: Mapping[str, Any] | None) -> None:
        """Show a step, and the line of metrics that it ended, if any."""
        if line is not None:
            self.text = summary(line)
        if not self.bar.disable:
            text = self.text or summary(values(progress))
            self.bar.update(self.task, completed=progress.step, description=self._full(progress.step, text))
        elif line is not None:
            say(self.console, self._full(progress.step, self.text))

    def held_out(self, line: Mapping[str, Any], *, of: str = HELD_OUT) -> None:
        """Show a look at held-out batches."""
        step = f"step {line['step']:,}/{self.steps:,}"
        which = "held out of the corpus before" if of == BEFORE else "held out"
        say(self.console, f"{step}  {which}: {summary(line, prefix=f'{of}.')}")

    def _full(self, step: int, text: str) -> str:
        pace = (time.monotonic() - self.started) / max(1, step - self.done)
        return f"step {step:,}/{self.steps:,}  {text}  {duration(pace * (self.steps - step))} left  {self.processor}"


class TrainingConsole(ExitStack):
    """Shows runs that train, one after the other: a bar on a terminal, elsewhere a line for each line of metrics."""

    def __init__(self) -> None:
        """Print to standard output."""
        super().__init__()
        self.line: ProgressLine | None = None

    def __call__(self, event: Any) -> None:
        """Print one event."""
        from osbert.training.progress import Progress as StepProgress  # late: it loads torch

        if isinstance(event, TrainingStart):
            self.close()
            line = ProgressLine(open_console(), processor=event.processor, done=event.done, steps=event.steps)
            self.line = self.enter_context(line)
        elif isinstance(event, TrialEnd):
            pass  # each trial has printed how it ended
        elif self.line is None:
            print(event, flush=True)
        elif isinstance(event, StepProgress):
            self.progress = event
            self.line.step(event, None)
        elif not isinstance(event, Measurement):
            say(self.line.console, event)
        elif event.of == "training":
            self.line.step(self.progress, event.values)
        else:
            self.line.held_out(event.values, of=event.of)


class VocabularyConsole(ExitStack):
    """Shows a vocabulary being trained: the bytes that were read, on standard error where that is a terminal."""

    def __init__(self) -> None:
        """Show the time left."""
        super().__init__()
        console = open_console(stderr=True)
        left = TextColumn("left"), TimeRemainingColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn(), *left)
        self.bar = self.enter_context(
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        )
        self.task = self.bar.add_task("", total=None)

    def __call__(self, event: Any) -> None:
        """Print one event."""
        if isinstance(event, VocabularyProgress):
            done, total = event.done or None, event.total or None  # None leaves it as it was
            self.bar.update(self.task, description=event.phase, completed=done, total=total)
        else:
            self.close()
            print(event)


class CorpusConsole(ExitStack):
    """Shows a corpus being built: a line of progress on standard error, which does not mix with the report."""

    def __init__(self) -> None:
        """Show the megabytes a second, and the time left."""
        super().__init__()
        left = TimeRemainingColumn(), TextColumn("left")
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), _Rate(), *left)
        self.bar = Progress(*columns, console=open_console(stderr=True))

    def __call__(self, event: Any) -> None:
        """Print one event."""
        if not isinstance(event, BuildProgress):
            say(open_console(), event)
            return
        if not self.bar.tasks:
            self.task = self.enter_context(self.bar).add_task(event.phase, total=None, text_bytes=0)
        elif event.phase != self.bar.tasks[0].description:
            self.bar.reset(self.task, description=event.phase, text_bytes=0)
        self.bar.update(self.task, completed=event.done, total=event.total, text_bytes=event.text_bytes)


class _Rate(ProgressColumn):
    """Megabytes of text a second since the task began."""

    def render(self, task: Task) -> Text:
        """Return the rate, or nothing in the phases that read no text."""
        if not task.fields["text_bytes"] or not task.elapsed:
            return Text("")
        return Text(f"{task.fields['text_bytes'] / 1e6 / task.elapsed:.1f} MB/s")


@contextmanager
def showing_progress(what: str) -> Iterator[Watch]:
    """Give a `watch` that prints notices and, on a terminal, shows a bar of events that are `done` of a `count`."""
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
