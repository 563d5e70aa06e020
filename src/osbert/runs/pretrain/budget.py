"""Converts a time budget (`minutes`) into a number of steps, and corrects that number while the run goes on.

A short test before the run trains a separate learner on the run's loader and discards it; the run itself starts from
its seed as usual. But a machine's speed changes: other programs come and go, and long texts take longer than the test
has seen. So at every line of metrics the time that is left is divided by the time of a step. If the end would miss the
budget, the run gets another number of steps, and the rest of its schedule is stretched or compressed to fit
(data/step.py). run.json keeps the steps and the corrections, so that a resumed run repeats them at the same steps.
"""

from __future__ import annotations

import math
import shutil
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from osbert.data.step import Pace
from osbert.errors import UserError
from osbert.runs.contract import Notice, Watch
from osbert.runs.pretrain.first_weights import other_text
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.runs.pretrain.speed_test import POOL, SpeedTest, phases
from osbert.training.distributed import ALONE, Group
from osbert.training.run_folder import RunFolder
from osbert.training.trainer import Trainer

SHARE, LEAST, MOST = 0.05, 1.0, 20.0
"""The speed test takes this fraction of the time, at least LEAST and at most MOST seconds."""
MARGIN = 0.03
"""Fraction of the time in reserve, because the speed of a machine varies."""
EVALUATING, SAVING = 0.05, 0.05
"""Largest fractions of the time for evaluations on the held-out batches, and for checkpoints."""
LOOKS = 10
"""Number of evaluations, and of checkpoints, in a run with a budget, if the time allows."""
INTERVALS = ("evaluate_every", "checkpoint_every", "log_every")
"""Settings of training that the budget sets, unless the user has."""
FORWARD = 0.4
"""Time of an evaluation of a batch, as a fraction of a training step on it."""
ENDING = 1.5
"""Seconds for the report and the end of the process, besides writing the weights."""

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


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The settings that follow from the minutes: steps, and intervals of evaluations, checkpoints and metrics."""

    minutes: float
    steps: int
    evaluate_every: int
    checkpoint_every: int
    log_every: int
    ending: float = ENDING
    """Seconds between the last step and the end of the run."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Durations of the parts of a run, in seconds.

    `spent`: since the minutes began. `start`: from now to the first step. `step`, `look` (an evaluation on the held-out
    batches) and `checkpoint`: each. `end`: after the last step.
    """

    spent: float
    start: float
    step: float
    look: float
    checkpoint: float
    end: float


def within_minutes(plan: PretrainPlan, out: Path, watch: Watch, group: Group = ALONE) -> PretrainPlan:
    """Return the plan with the steps that its `minutes` allow.

    A run that was started in `out` keeps its steps. All processes of a group call this and get the same plan. Raises
    UserError if the run was started with other minutes, or if they are too few for one step.
    """
    folder = RunFolder(out)
    budget = group.first(lambda: read_budget(folder, plan.settings.minutes))
    if budget is None:
        group.first(folder.refuse_foreign)
        costs = measure_costs(plan, out, watch, group)
        budget = group.first(lambda: spread(plan, costs))
        watch(Notice(f"{budget.minutes:g} minutes allow {budget.steps:,} steps."))
    training = {name: value for name, value in asdict(budget).items() if f"training.{name}" not in plan.given}
    del training["minutes"], training["ending"]
    settings = replace(plan.settings, minutes=0.0, training=replace(plan.settings.training, **training))
    return replace(plan, settings=settings, budget=asdict(budget))


def read_budget(folder: RunFolder, minutes: float) -> Budget | None:
    """Return the budget of the run in a folder, None if there is no run. Raises UserError if it differs."""
    facts = folder.facts
    if not facts:
        return None
    stored = facts.get("budget")
    if stored is not None and stored["minutes"] == minutes:
        return Budget(**stored)
    begun = f"--minutes {stored['minutes']:g}" if stored else f"--steps {facts['settings']['training']['steps']}"
    raise UserError(
        f"{folder.folder} holds a run that was begun with {begun}, not --minutes {minutes:g}. Give that to go on with "
        "it, or choose another folder for --out.",
        code="begun-with-other-settings",
    )


def measure_costs(plan: PretrainPlan, out: Path, watch: Watch, group: Group = ALONE) -> Costs:
    """Train a temporary learner for a few seconds, and return the duration of each part of the run.

    In a group of processes each duration is that of the slowest process.
    """
    settings = plan.settings
    seconds = min(MOST, max(LEAST, 60 * settings.minutes * SHARE))
    begun = f"Testing the speed for about {seconds:.0f} s, to see how many steps {settings.minutes:g} minutes allow."
    watch(Notice(begun))
    scratch = out / "speed-test"
    remove = partial(shutil.rmtree, scratch, ignore_errors=True)
    group.first(remove)  # what a test that was killed has left
    try:
        test = SpeedTest(plan, scratch, group)
        parts = phases(plan)
        speeds = [test.speed(phase.length, seconds=seconds / len(parts)) for phase in parts]
        writes = settings.training.checkpoint_every or settings.training.models_every
        checkpoint = test.checkpoint_seconds() if writes else 0.0
    finally:
        if not group.rank:
            remove()
    first = speeds[0]
    for phase, speed in zip(parts, speeds, strict=True):
        rate = f"{speed.tokens_per_second:,.0f} tokens/s, {speed.step_seconds:.3g} s a step"
        guess = ", by a line through smaller steps" if speed.extrapolated else ""
        watch(Notice(f"At most {phase.length} tokens a sequence: {rate}{guess}."))
    loader = plan.loader(length=settings.data.length)
    looked_at = [loader.make_held_out(), *other_text(plan).values()]
    held_out = sum(batch.size for batches in looked_at for batch in batches)
    # The test uses small pools; the time for laying out a pool grows with its tokens.
    layout = first.layout_seconds * min(settings.data.pool, plan.corpus.tokens) / min(POOL, plan.corpus.tokens)
    costs = Costs(
        spent=time.monotonic() - plan.begun,
        start=test.building_seconds + layout * len(parts) + sum(speed.warming_seconds for speed in speeds),
        step=sum(speed.step_seconds * phase.fraction for phase, speed in zip(parts, speeds, strict=True)),
        look=held_out * first.step_seconds / first.step_tokens * FORWARD,
        checkpoint=checkpoint,
        end=ENDING + checkpoint,
    )
    slowest = {name: max(group.gather(seconds, name)) for name, seconds in asdict(costs).items()}
    return Costs(**slowest)


def spread(plan: PretrainPlan, costs: Costs) -> Budget:
    """Return the budget: the number of steps that fit into the minutes, less the fixed costs of the run.

    Intervals that the user gave are kept, and their cost is counted with each step. Raises UserError if not even one
    step fits.
    """
    training, minutes = plan.settings.training, plan.settings.minutes
    whole = 60 * minutes * (1 - MARGIN)
    looks = _affordable(whole * EVALUATING, costs.look) if training.evaluate_every else 1
    checkpoints = _affordable(whole * SAVING, costs.checkpoint) if training.checkpoint_every else 0
    fixed, step = costs.spent + costs.start + costs.end, costs.step
    user_intervals = {name for name in INTERVALS if f"training.{name}" in plan.given and getattr(training, name)}
    for name, times, each in (
        ("evaluate_every", looks, costs.look),
        ("checkpoint_every", checkpoints, costs.checkpoint),
    ):
        # A given interval costs a fraction of an evaluation (or checkpoint) at each step, plus the one at the end;
        # otherwise their number is fixed.
        if name in user_intervals:
            step += each / getattr(training, name)
            times = 1
        fixed += times * each
    if training.models_every:
        step += costs.checkpoint / training.models_every  # a model is smaller, but is built anew before it is written
    steps = math.floor((whole - fixed) / step)
    if steps < 1:
        least = (fixed + step) / (1 - MARGIN) / 60
        raise UserError(
            f"--minutes {minutes:g} is too short: beginning and ending take {fixed:,.0f} s and a step "
            f"{step:,.1f} s. Give {math.ceil(10 * least) / 10:g} or more, or a smaller model or batch.",
            code="too-little-time",
        )
    intervals = {
        "evaluate_every": _interval(training.evaluate_every, steps, looks),
        "checkpoint_every": _interval(training.checkpoint_every, steps, checkpoints),
        "log_every": min(training.log_every, math.ceil(steps / 50)),
    }
    intervals |= {name: getattr(training, name) for name in user_intervals}
    return Budget(minutes=minutes, steps=steps, ending=round(costs.end + costs.look + costs.checkpoint, 3), **intervals)


def _affordable(seconds: float, each: float) -> int:
    return int(min(LOOKS, max(1, seconds // max(each, 1e-9))))


def _interval(wanted: int, steps: int, times: int) -> int:
    """Return the interval in steps for `times` evaluations; a wanted interval of 0 (none) stays 0."""
    return wanted and math.ceil(steps / times)


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
