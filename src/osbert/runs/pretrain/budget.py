"""Converts a time budget (`minutes`) into a number of steps, by a short speed test before the run.

The test trains a separate learner on the run's loader and discards it; the run itself starts from its seed as usual.
The steps are stored in run.json, so that a stopped run resumes with the same number.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from osbert.errors import UserError
from osbert.runs.contract import Notice, Watch
from osbert.runs.pretrain.first_weights import other_text
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.runs.pretrain.speed_test import POOL, SpeedTest, phases
from osbert.training.distributed import ALONE, Group
from osbert.training.probe import Speed
from osbert.training.run_folder import RunFolder

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


def describe_time(plan: PretrainPlan) -> str:
    """Return a sentence on the planned and the actual minutes of a run with a budget that has ended."""
    assert plan.budget is not None
    return f"Planned {plan.budget['minutes']:g} minutes, took {(time.monotonic() - plan.begun) / 60:.3g}."


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
        watch(Notice(f"At most {phase.length} tokens a sequence: {_describe_speed(speed)}."))
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


def since_start() -> float:
    """Return the seconds since this process was started; the processor time so far if the system does not tell."""
    try:
        # Field 22 of /proc/self/stat: start time in clock ticks since boot. The process name, in parentheses, may
        # contain spaces, so fields are counted from the last ")", after which field 3 comes.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return time.process_time()


def _affordable(seconds: float, each: float) -> int:
    return int(min(LOOKS, max(1, seconds // max(each, 1e-9))))


def _interval(wanted: int, steps: int, times: int) -> int:
    """Return the interval in steps for `times` evaluations; a wanted interval of 0 (none) stays 0."""
    return wanted and math.ceil(steps / times)


def _describe_speed(speed: Speed) -> str:
    guess = ", by a line through smaller steps" if speed.extrapolated else ""
    return f"{speed.tokens_per_second:,.0f} tokens/s, {speed.step_seconds:.3g} s a step{guess}"
