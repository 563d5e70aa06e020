"""Resolves data.micro_tokens = "auto": chooses the most tokens of one pass by a short test before the run.

Larger passes are faster, because every pass adds its gradients to those of all weights, but they need more memory. The
test doubles the tokens of a pass until that no longer pays, memory is short, or its time is over. The cut of a step
into passes changes its rounding and its dropout, so the number is kept in run.json, and a resumed run takes it from
there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from osbert.data.batch import Batch
from osbert.data.loader import PretrainingLoader
from osbert.data.stages import Stages, first_steps
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.pretrain.first_weights import build_learner
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.runs.pretrain.speed_test import POOL, phases
from osbert.training import memory
from osbert.training.distributed import ALONE, Group, local
from osbert.training.probe import peak_memory, reset_memory
from osbert.training.run_folder import RunFolder
from osbert.training.trainer import Trainer

SMALLEST = 1_024
"""Tokens of the first pass that is tried, unless a sequence has more."""
MODEST = 2**30
"""A step whose activations take fewer bytes is one pass, without a test."""
ENOUGH = 0.97
"""The smallest pass with this fraction of the highest speed is chosen."""
GAIN = 1.02
"""A larger pass is worth a further doubling if it is faster by this factor."""
ROOM = 0.7
"""Fraction of the free memory that a run may take; the rest is for what grows later, and for other programs."""
SECONDS, LONGEST, SHARE, PART = 20.0, 120.0, 0.005, 0.03
"""Longest time of the test: SECONDS, for long runs this SHARE of them up to LONGEST; at most PART of a time budget."""
WARM, ROUNDS = 1.0, 2
"""Seconds from which a pass needs no second one to warm up or to be sure, and passes that are timed below that."""
SLOWER, FULL = "more are no faster", "memory is free for no more"
"""Why no larger pass is taken."""
ACTIVATION = 5.0
"""Bytes of memory for each number that is kept for the backward pass, at the peak of a step in float32."""
BYTES = 12
"""Bytes for each weight during a step besides the weight: the gradient and two moments."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Passes of at most `tokens` tokens that were tried, one of each objective of a curriculum.

    `speed`: tokens per second. `seconds`: of the test; `round_seconds`: of a round of it. `memory`: bytes of a run
    with such passes at its peak.
    """

    tokens: int
    speed: float
    seconds: float
    round_seconds: float
    memory: float


def with_passes(plan: PretrainPlan, out: Path, watch: Watch = ignore, group: Group = ALONE) -> PretrainPlan:
    """Return the plan with a number for `data.micro_tokens` in place of "auto".

    A run that was started in `out` keeps its number. All processes of a group call this and get the same plan.
    """
    data = plan.settings.data
    if data.micro_tokens != "auto":
        return plan
    tokens = group.first(partial(read_pass_tokens, RunFolder(out)))
    if tokens is None:
        group.first(RunFolder(out).refuse_foreign)
        tokens, remark = choose(plan, out / "speed-test", group)
        if remark:
            watch(Notice(remark))
    settings = replace(plan.settings, data=replace(data, micro_tokens=tokens))
    return replace(plan, settings=settings)


def read_pass_tokens(folder: RunFolder) -> int | None:
    """Return the number of the run in a folder, None if there is no run. Before there was "auto" it was 0, one pass."""
    facts = folder.facts
    data = facts.get("settings", {}).get("data", {}) if facts else None
    return None if data is None else data.get("micro_tokens", 0)


def choose(plan: PretrainPlan, scratch: Path, group: Group = ALONE) -> tuple[int, str]:
    """Return the most tokens of one pass, 0 for whole steps, and a line that reports a test.

    `scratch`: a folder for the trainer, which writes nothing there.
    """
    length = max(phase.length for phase in phases(plan))
    step = plan.settings.data.batch * length / group.size
    if any(objective.whole for objective in plan.objectives.values()) or step * _most_bytes(plan, length) < MODEST:
        return 0, ""
    test = PassTest(plan, scratch, length, group)
    tried, reason = test.try_passes(step)
    fastest = max((candidate.speed for candidate in tried), default=0.0)
    best = next((candidate for candidate in tried if candidate.speed >= ENOUGH * fastest), None)
    if best is None:
        return length, f"A pass takes one sequence ({reason}). See data.micro_tokens."
    tokens = 0 if best.tokens >= step else best.tokens
    if best is not tried[-1]:
        reason = SLOWER
    cut = f"at most {tokens:,} tokens" if tokens else "a whole step"
    return tokens, f"A pass takes {cut} ({reason}; about {best.memory / 1e9:.1f} GB). See data.micro_tokens."


def _most_bytes(plan: PretrainPlan, length: int) -> float:
    """Return about how many bytes a token's activations take at most."""
    model = plan.settings.model
    # At most every second token is scored over the vocabulary, but in models that write, where all are.
    scored = 1.0 if model.language_objective else 0.5
    return ACTIVATION * (model.layers * model.activations(length) + 3 * scored * model.vocabulary)


class PassTest:
    """Measures passes of growing size on a learner that is then discarded."""

    def __init__(self, plan: PretrainPlan, scratch: Path, length: int, group: Group) -> None:
        """Build the learner for sequences of `length` tokens. All processes of a group take part."""
        settings = plan.settings
        self.plan, self.length, self.group = plan, length, group
        # Compiling takes a minute, and which size is fastest hardly depends on it.
        training = replace(settings.training, compile="no", checkpoint_every=0)
        loader = self._loader(group.size, 0)
        self.trainer = Trainer(build_learner(plan), loader, settings.optimizer, training, scratch, group)
        self.processor = self.trainer.processor
        self.weights = BYTES * sum(local(weight).numel() for weight in self.trainer.weights)
        reset_memory(self.processor)
        self.before = peak_memory(self.processor)
        self.free = memory.free_memory(self.processor.device) * ROOM

    def try_passes(self, step: float) -> tuple[list[Pass], str]:
        """Return the passes that were tried, smallest first, and why no larger one was; `step`: tokens of a step."""
        passes: list[Pass] = []
        for tokens in _sizes(max(SMALLEST, self.length), step):
            measured = self._measure_pass(tokens, whole=tokens >= step)
            if measured is None:
                return passes, FULL
            passes.append(measured)
            # Two doublings without a gain: one alone may be a disturbance.
            if len(passes) > 2 and max(candidate.speed for candidate in passes[-2:]) < GAIN * max(
                candidate.speed for candidate in passes[:-2]
            ):
                return passes, SLOWER
            # A pass of twice the tokens takes at most twice the memory.
            fits = self.weights + 2 * (measured.memory - self.weights - self.before) < self.free
            if not all(self.group.gather(fits, "free memory")):
                return passes, FULL
            # So a round takes twice as long; but a whole step's has one pass, not two of half its tokens.
            following = measured.round_seconds * (1 if 2 * tokens >= step else 2)
            if sum(candidate.seconds for candidate in passes) + following > self._limit(measured.speed, step):
                return passes, "larger ones take too long to try"
        return passes, "all there are"

    def _limit(self, speed: float, step: float) -> float:
        """Return the longest time of the test in seconds; the run has steps of `step` tokens at `speed` a second."""
        minutes = self.plan.settings.minutes
        run = 60 * minutes or self.plan.settings.training.steps * step / speed
        most = min(max(SECONDS, SHARE * run), LONGEST)
        return min(most, PART * run) if minutes else most

    def _measure_pass(self, tokens: int, *, whole: bool) -> Pass | None:
        """Return the measurements of passes of at most `tokens` tokens, None if memory ran out; `whole`: of a step."""
        # Of several passes in a step all but the first add to gradients that are there, which takes time of its own.
        batches = self._batches(tokens) * (1 if whole else 2)
        # Texts shorter than a sequence leave passes less than full; all processes must know the same speed.
        real = sum(self.group.gather(sum(batch.size for batch in batches), "tokens of passes")) / self.group.size
        taken: list[float] = []
        while len(taken) <= ROUNDS and sum(taken) < WARM:
            seconds = self.trainer.rehearse(batches)
            if seconds is None:
                return None
            taken.append(seconds)
        return Pass(
            tokens=tokens,
            speed=real / min(taken),
            seconds=sum(taken),
            round_seconds=min(taken),
            memory=peak_memory(self.processor) + self.weights,
        )

    def _batches(self, tokens: int) -> list[Batch]:
        """Return the largest pass of at most `tokens` tokens in a step of each objective, as full as in the run."""
        whole = self.plan.settings.data.batch
        sequences = math.ceil(tokens / self.length) * self.group.size
        while True:
            steps = first_steps(self._loader(min(sequences, whole), tokens))
            # The first pass of several is full, and the sequences are in the order of their lengths.
            if sequences >= whole or all(len(batches) > 1 for batches in steps):
                return [max(batches, key=lambda batch: batch.size) for batches in steps if batches]
            sequences *= 2

    def _loader(self, batch: int, tokens: int) -> PretrainingLoader | Stages:
        settings = self.plan.settings
        data = replace(settings.data, batch=batch, micro_tokens=tokens, pool=min(settings.data.pool, POOL))
        plan = replace(self.plan, settings=replace(settings, data=data))
        return plan.loader(length=self.length).part(self.group.part)


def _sizes(first: int, step: float) -> Iterator[int]:
    """Yield numbers of tokens, each twice the one before, up to those of a step.

    >>> list(_sizes(1_024, 5_000.0))
    [1024, 2048, 4096, 5000]
    """
    yield from itertools.takewhile(lambda tokens: tokens < step, (first * 2**power for power in itertools.count()))
    yield math.ceil(step)
