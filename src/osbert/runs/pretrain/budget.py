"""Minutes on the clock become a number of steps: a short test of the speed, before the run that it plans for.

The test trains a learner of its own, which is then thrown away, on the run's own loader; the run itself starts from its
seed as ever. Once it has begun, its steps stand in run.json, so it goes on after a stop as any other run does.
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
from osbert.runs.pretrain.other_text import other_text
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.runs.pretrain.speed_test import POOL, SpeedTest, phases
from osbert.training.distributed import ALONE, Group
from osbert.training.probe import Speed
from osbert.training.run_folder import RunFolder

SHARE, LEAST, MOST = 0.05, 1.0, 20.0
"""The speed test takes this fraction of the time, within bounds in seconds."""
MARGIN = 0.03
"""Fraction of the time that is kept in reserve, because the speed of a machine varies."""
EVALUATING, SAVING = 0.05, 0.05
"""Most of the time that looks at the held-out batches may take, and checkpoints."""
LOOKS = 10
"""A run with a budget looks at the held-out batches, and writes a checkpoint, so often if it can afford it."""
INTERVALS = ("evaluate_every", "checkpoint_every", "log_every")
"""Settings of training that the budget decides unless the command line has."""
FORWARD = 0.4
"""Time of a look at a batch in that of a step on it."""
ENDING = 1.5
"""Seconds that the model, the report and the interpreter's end take, besides writing the weights."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What minutes have become: the steps, and the steps between two looks, checkpoints and lines of metrics."""

    minutes: float
    steps: int
    evaluate_every: int
    checkpoint_every: int
    log_every: int
    ending: float = ENDING
    """Seconds that the run takes after its last step."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds that parts of a run take.

    What has been `spent` since the minutes began; what still comes before the first step; a step, a look at the
    held-out batches, a checkpoint; what comes after the last step.
    """

    spent: float
    start: float
    step: float
    look: float
    checkpoint: float
    end: float


def within_minutes(plan: PretrainPlan, out: Path, watch: Watch, group: Group = ALONE) -> PretrainPlan:
    """Return the plan of a run with the steps that its `minutes` allow; a plan without minutes as it is.

    A run that has begun in `out` keeps its steps. All processes of a group call, and come to the same plan. Raises
    UserError when the run was begun with other minutes, and when they do not suffice for a step.
    """
    if not plan.settings.minutes:
        return plan
    folder = RunFolder(out)
    budget = group.first(lambda: stored_budget(folder, plan.settings.minutes))
    if budget is None:
        group.first(folder.refuse_foreign)
        costs = measure_costs(plan, out, watch, group)
        budget = group.first(lambda: spread(plan, costs))
        watch(Notice(f"{budget.minutes:g} minutes allow {budget.steps:,} steps."))
    training = {name: value for name, value in asdict(budget).items() if f"training.{name}" not in plan.given}
    del training["minutes"], training["ending"]
    settings = replace(plan.settings, minutes=0.0, training=replace(plan.settings.training, **training))
    return replace(plan, settings=settings, budget=asdict(budget))


def stored_budget(folder: RunFolder, minutes: float) -> Budget | None:
    """Return the budget of the run in a folder, None if there is no run; UserError if it is another one."""
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


def time_taken(plan: PretrainPlan, out: Path) -> str:
    """Return how long the run took against the minutes planned; "" if it has not ended its run or had none."""
    if plan.budget is None or not RunFolder(out).finished:
        return ""
    return f"Planned {plan.budget['minutes']:g} minutes, took {(time.monotonic() - plan.begun) / 60:.3g}."


def measure_costs(plan: PretrainPlan, out: Path, watch: Watch, group: Group = ALONE) -> Costs:
    """Train a learner that is thrown away for a few seconds, and return what each part of the run takes.

    In a group of processes each part takes as long as in the slowest.
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
        watch(Notice(f"At most {phase.length} tokens a sequence: {_told(speed)}."))
    loader = plan.loader(length=settings.data.length)
    looked_at = [loader.held_out(), *other_text(plan).values()]
    held_out = sum(batch.size for batches in looked_at for batch in batches)
    layout = first.layout_seconds * min(settings.data.pool, plan.corpus.tokens) / min(POOL, plan.corpus.tokens)
    costs = Costs(
        spent=time.monotonic() - plan.begun,
        start=test.building_seconds + layout * len(parts) + sum(speed.warming_seconds for speed in speeds),
        step=sum(speed.step_seconds * phase.share for phase, speed in zip(parts, speeds, strict=True)),
        look=held_out * first.step_seconds / first.step_tokens * FORWARD,
        checkpoint=checkpoint,
        end=ENDING + checkpoint,
    )
    slowest = {name: max(group.gathered(seconds, name)) for name, seconds in asdict(costs).items()}
    return Costs(**slowest)


def spread(plan: PretrainPlan, costs: Costs) -> Budget:
    """Return the budget: as many steps as fit into what the rest of the run leaves of the minutes.

    Intervals that the command line gave stay as they are, and what they cost a step is part of it. Raises UserError
    when not even one step fits.
    """
    training, minutes = plan.settings.training, plan.settings.minutes
    whole = 60 * minutes * (1 - MARGIN)
    looks = _affordable(whole * EVALUATING, costs.look) if training.evaluate_every else 1
    checkpoints = _affordable(whole * SAVING, costs.checkpoint) if training.checkpoint_every else 0
    fixed, step = costs.spent + costs.start + costs.end, costs.step
    kept = {name for name in INTERVALS if f"training.{name}" in plan.given and getattr(training, name)}
    for name, times, each in (
        ("evaluate_every", looks, costs.look),
        ("checkpoint_every", checkpoints, costs.checkpoint),
    ):
        if name in kept:
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
    intervals |= {name: getattr(training, name) for name in kept}
    return Budget(minutes=minutes, steps=steps, ending=round(costs.end + costs.look + costs.checkpoint, 3), **intervals)


def since_start() -> float:
    """Return the seconds since this process was started, or since Python can tell, where the system does not."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return time.process_time()


def _affordable(seconds: float, each: float) -> int:
    return int(min(LOOKS, max(1, seconds // max(each, 1e-9))))


def _interval(wanted: int, steps: int, times: int) -> int:
    """Return the steps between two looks of which there are `times`; 0, for none on the way, stays 0."""
    return wanted and math.ceil(steps / times)


def _told(speed: Speed) -> str:
    guess = ", by a line through smaller steps" if speed.extrapolated else ""
    return f"{speed.tokens_per_second:,.0f} tokens/s, {speed.step_seconds:.3g} s a step{guess}"
