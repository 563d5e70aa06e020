"""Prints what a run reports: notices a line each, steps as a bar on a terminal or else a line every so many."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from osbert.runs.finetune.events import StepMeans, TrainingBegin
from osbert.runs.study.runner import TrialEnd
from osbert.terminal import open_console
from osbert.training.progress import Progress
from osbert.training.tracking import ProgressLine


class RunPrinter:
    """`with RunPrinter() as watch:` is a `watch` for runs; the bar goes at the end of the steps, or of the block."""

    def __init__(self) -> None:
        """Print to standard output."""
        self._line: ProgressLine | None = None
        self._means: Mapping[str, Any] | None = None
        self._shown = ExitStack()

    def __enter__(self) -> RunPrinter:
        """Begin to print."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the console in order."""
        self._close()

    def __call__(self, event: Any) -> None:
        """Print an event."""
        if isinstance(event, TrainingBegin):
            line = ProgressLine(open_console(), processor=event.processor, done=event.done, steps=event.steps)
            self._line = self._shown.enter_context(line)
        elif isinstance(event, StepMeans):
            self._means = event.values
        elif isinstance(event, Progress):
            if self._line:
                self._line.step(event, self._means)
            self._means = None
            if event.step == event.steps:
                self._close()
        elif isinstance(event, TrialEnd):
            pass  # each trial has printed how it ended
        elif self._line:
            self._line.say(str(event))
        else:
            print(event, flush=True)

    def _close(self) -> None:
        self._line = None
        self._shown.close()
