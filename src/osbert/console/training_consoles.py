"""Callbacks for verbs that train models: a bar on a terminal, elsewhere a line for each measurement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn

from osbert.console.output import EventConsole, line_of, say
from osbert.runs.events import Measurement, RunEnd, TrainingStart
from osbert.terminal import open_console
from osbert.training.tracking import BEFORE, GENERAL, HELD_OUT, duration, summary, values

if TYPE_CHECKING:
    from rich.console import Console

    from osbert.training.progress import Progress as StepProgress

MEASURED = {BEFORE: "held out of the corpus before", GENERAL: "general text"}
"""Descriptions of held-out batches that are not from the run's own corpus."""


class ProgressLine(ExitStack):
    """Shows one run: a bar on a terminal, else a line of text for each line of metrics."""

    def __init__(self, console: Console, *, processor: str, done: int, steps: int) -> None:
        """Show `steps` steps; `done` steps were taken before. `processor` is printed literally."""
        super().__init__()
        self.console = console
        self.processor = processor
        self.steps = steps
        self.starts = [(time.monotonic(), done)]
        self.text = ""
        columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
        progress = Progress(
            *columns, console=console, refresh_per_second=2, transient=True, disable=not console.is_terminal
        )
        self.task = progress.add_task("", total=steps, completed=done)
        self.bar = self.enter_context(progress)

    def step(self, progress: StepProgress, line: Mapping[str, Any] | None) -> None:
        """Show a step, and the line of metrics that it completed, if any."""
        self.steps = progress.steps  # a run with minutes corrects it
        if len(self.starts) == 1:  # a linear layer before the first step does not count as a step's time
            self.starts.append((time.monotonic(), progress.step))
        if line is not None:
            self.text = summary(line)
        if not self.bar.disable:
            text = self.text or summary(values(progress))
            description = self._full(progress.step, text)
            self.bar.update(self.task, total=self.steps, completed=progress.step, description=description)
        elif line is not None:
            say(self.console, self._full(progress.step, self.text))

    def show_held_out(self, line: Mapping[str, Any], *, of: str = HELD_OUT) -> None:
        """Show a measurement on held-out batches."""
        step = f"step {line['step']:,}/{self.steps:,}"
        say(self.console, f"{step}  {MEASURED.get(of, 'held out')}: {summary(line, prefix=f'{of}.')}")

    def _full(self, step: int, text: str) -> str:
        # Seconds per step of this process: steps before a resume took no time of it.
        started, done = next(start for start in reversed(self.starts) if start[1] < step)
        pace = (time.monotonic() - started) / (step - done)
        return f"step {step:,}/{self.steps:,}  {text}  {duration(pace * (self.steps - step))} left  {self.processor}"


class TrainingConsole(EventConsole):
    """Shows runs that train, one after another: a bar on a terminal, elsewhere a line for each line of metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.line: ProgressLine | None = None

    def show(self, event: Any) -> None:
        from osbert.training.progress import Progress as StepProgress  # late: it loads torch

        if isinstance(event, TrainingStart):
            self.close()
            line = ProgressLine(open_console(), processor=event.processor, done=event.done, steps=event.steps)
            self.line = self.enter_context(line)
        elif isinstance(event, RunEnd):
            pass  # each run has printed how it ended
        elif self.line is None:
            print(line_of(event), flush=True)
        elif isinstance(event, StepProgress):
            # Kept for the Measurement that follows: it ends this step's line of metrics.
            self.progress = event
            self.line.step(event, None)
        elif not isinstance(event, Measurement):
            say(self.line.console, event)
        elif event.of == "training":
            self.line.step(self.progress, event.values)
        else:
            self.line.show_held_out(event.values, of=event.of)
