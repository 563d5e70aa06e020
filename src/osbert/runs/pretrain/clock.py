"""Keeps a run with a time budget to its minutes: the number of steps is corrected while the run goes on.

A machine's speed changes: other programs come and go, and long texts take longer than the speed test has seen. So at
every line of metrics the time that is left is divided by the time of a step. If the end would miss the budget, the run
gets another number of steps, and the rest of its schedule is stretched or compressed to fit (data/step.py). run.json
keeps the corrections, so that a resumed run repeats them at the same steps.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from osbert.data.step import Pace
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.training.distributed import Group
from osbert.training.run_folder import RunFolder
from osbert.training.trainer import Trainer

ELAPSED = "elapsed"
"""Seconds that the run has taken up to a checkpoint, in the trainer's memory."""
AIM = 0.98
"""The fraction of the minutes after which a corrected run is to end."""
SLACK, EARLY = 0.015, 0.1
"""Fractions of the minutes, and of the time that is left, by which the expected end may miss the aim before the steps
are corrected. Every correction makes the loader begin anew, and an early miss may pass by itself."""
WINDOW = 0.04
"""The time of a step is measured over the last steps, for at least this fraction of the minutes: long enough to be
sure, short enough that a slower machine shows soon."""
LATEST = 1.03
"""The fraction of the minutes by which a corrected run ends at the latest, if the time of a step does not change."""
NEWS = 0.1
"""The change of the number of steps, as a fraction of the number that was printed last, that is printed again."""


class Reading(NamedTuple):
    """The state of a run at a step: the seconds since it began, and those of them that were spent in steps."""

    step: int
    elapsed: float
    in_steps: float


class RunClock:
    """Corrects the number of steps of a run with a budget. In a group the first process decides for all."""

    def __init__(self, plan: PretrainPlan, trainer: Trainer, group: Group) -> None:
        """Restore the pace of trainer and loader from run.json."""
        assert plan.budget is not None
        self.plan, self.trainer, self.group = plan, trainer, group
        self.folder = RunFolder(trainer.folder)
        self.seconds = 60 * plan.budget["minutes"]
        self.ending = plan.budget["ending"]
        self.before = trainer.memory.get(ELAPSED, 0.0)
        self.readings: deque[Reading] = deque()
        self.first: Reading | None = None
        self.printed = trainer.settings.steps
        stored = group.first(lambda: self.folder.facts.get("corrections", []))
        self._keep(Pace(planned=trainer.settings.steps, corrections=tuple((step, steps) for step, steps in stored)))

    def total_seconds(self) -> float:
        """Return the seconds that the run has taken, including those before a stop."""
        return self.before + time.monotonic() - self.plan.begun

    def correct(self) -> bool:
        """Correct the number of steps if needed, and store it in run.json; return whether it was. Called each step."""
        trainer = self.trainer
        trainer.memory[ELAPSED] = self.total_seconds()
        if trainer.step % trainer.settings.log_every or trainer.finished:
            return False
        # A correction that was made before the run was stopped is repeated; until its last one no new one is made.
        if trainer.pace.corrections and trainer.step <= trainer.pace.corrections[-1][0]:
            return False
        steps = self.group.first(self._steps)
        if steps is None:
            return False
        self._keep(trainer.pace.with_correction(trainer.step, steps))
        self.group.first(
            lambda: self.folder.note(corrections=[list(correction) for correction in trainer.pace.corrections])
        )
        return True

    def is_news(self) -> bool:
        """Return whether the number of steps has changed so much since True was returned last that it is printed."""
        steps = self.trainer.pace.steps
        if abs(steps - self.printed) <= NEWS * self.printed:
            return False
        self.printed = steps
        return True

    def _keep(self, pace: Pace) -> None:
        self.trainer.pace = self.trainer.loader.pace = pace  # type: ignore[attr-defined]

    def _steps(self) -> int | None:
        """Return the number of steps that fit into the minutes; None if the present number is close enough."""
        trainer = self.trainer
        now = Reading(trainer.step, self.total_seconds(), trainer.counters.seconds)
        self.first = self.first or now
        self.readings.append(now)
        oldest = now.elapsed - WINDOW * self.seconds
        # Keep one reading that is at least WINDOW old, and all later ones.
        while len(self.readings) > 1 and self.readings[1].elapsed <= oldest:
            self.readings.popleft()
        before, first = self.readings[0], self.first
        if before.elapsed > oldest:
            return None
        in_step = (now.in_steps - before.in_steps) / (now.step - before.step)
        # Looks at the held-out text and checkpoints come at intervals, so their time is taken over all steps so far,
        # as a multiple of the time in steps: both follow the machine's speed.
        in_steps = max(now.in_steps - first.in_steps, 1e-9)
        beside = max((now.elapsed - first.elapsed) / in_steps - 1, 0.0)
        each = max(in_step * (1 + beside), 1e-9)
        left = AIM * self.seconds - self.ending - now.elapsed
        # The nearest whole number of steps; rounded down, a run of few long steps would end early by one of them.
        more = round(left / each)
        if more * each > left + (LATEST - AIM) * self.seconds:
            more -= 1
        steps = trainer.step + max(1, more)
        miss = abs(steps - trainer.pace.steps) * each
        return steps if miss > max(SLACK * self.seconds, EARLY * left) else None
