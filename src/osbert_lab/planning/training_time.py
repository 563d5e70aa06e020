"""Says how long a fine-tuning takes: before a linear layer is fitted to many rows, and after the first steps."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from osbert.data.batch import micro_batches
from osbert.evaluation.forward import TOKENS, evaluating
from osbert.runs.contract import Notice, Watch
from osbert.runs.events import Epoch, TrainingStart
from osbert.runs.finetune.rows import TaskRows
from osbert.runs.finetune.training_loop import FinetuneTrainer
from osbert.training.progress import Progress
from osbert.training.tracking import duration

SHORTEST = 30.0
"""Seconds below which nothing is said."""
MEASURED = 3
"""Steps after which the time of the others is said; the first is slower and does not count."""
SAMPLE = 16
"""Rows that are read to estimate the time of all."""
QUICKER = "; --few-shot linear takes the linear layer alone"


class TimedWatch:
    """Passes events on to `watch`, with estimates of the time of `run` among them."""

    def __init__(self, run: FinetuneTrainer, watch: Watch) -> None:
        self.run = run
        self.watch = watch
        self.steps_before = run.trainer.step
        self.started = self.first_step = 0.0
        self.fit_seconds = 0.0
        self.is_told = False

    def __call__(self, event: Any) -> None:
        """Pass an event on, and an estimate before the first work or after the first steps."""
        self.watch(event)
        now, few_shot = time.monotonic(), self.run.settings.few_shot
        if isinstance(event, TrainingStart):
            self.started = now
            if few_shot != "none" and not self.run.epochs:
                [rows] = self.run.rows.tasks
                self._say(read_seconds(self.run, rows), f"to read {len(rows.training):,} rows for the linear layer")
        elif isinstance(event, Epoch) and not event.step:
            self.fit_seconds = now - self.started
        elif isinstance(event, Progress) and not self.is_told:
            taken = event.step - self.steps_before
            if taken == 1:
                self.first_step = now
            if taken < MEASURED:
                return
            self.is_told = True
            left = event.steps - event.step
            # Contrastive tuning fits the layer anew at every score.
            fits = left / self.run.period if self.run.settings.contrastive and self.run.period > 1 else 0
            seconds = left * (now - self.first_step) / (taken - 1) + fits * self.fit_seconds
            self._say(seconds, f"for {left:,} more steps{QUICKER if few_shot != 'none' else ''}")

    def _say(self, seconds: float, what: str) -> None:
        if seconds >= SHORTEST:
            self.watch(Notice(f"time: about {duration(seconds)} {what}"))


def read_seconds(run: FinetuneTrainer, rows: TaskRows) -> float:
    """Return about how many seconds the encoder takes for all training rows, by a sample of them."""
    count = len(rows.encoded)
    if count <= SAMPLE:
        return 0.0
    examples = rows.encoded.take(np.linspace(0, count - 1, SAMPLE, dtype=np.int64))
    [*batches] = micro_batches(examples, TOKENS, together=rows.task.batching != "sequences")
    with evaluating(run.learner) as device:
        for _ in range(2):  # the first pass is slower than later ones
            started = time.monotonic()
            for batch in batches:
                run.learner.states(batch.to(device)).summary.sum().item()  # which waits for a GPU
            seconds = time.monotonic() - started
    return seconds * count / SAMPLE
