"""The speed test of `pretrain --minutes`, and of `plan` and `bench`: trains the plan's learner for some seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from osbert.data.loader import PretrainingLoader
from osbert.data.stages import Stages
from osbert.data.step import Pace
from osbert.runs.pretrain.first_weights import build_learner
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.training import memory
from osbert.training.distributed import ALONE, Group
from osbert.training.probe import Speed, probe, resident_memory
from osbert.training.trainer import Trainer

POOL = 2**16
"""Most tokens in the loader's pools during a test; laying out a full pool would take too much of its time."""
ENDLESS = 10**9
"""Steps of the run in a test, which only takes the first ones."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A sequence length, and the fraction of a run's steps that have it."""

    length: int
    fraction: float


def phases(plan: PretrainPlan) -> list[Phase]:
    """Return the phases of a run: one, or two if the last steps have longer sequences."""
    data = plan.settings.data
    short = Phase(length=data.length, fraction=1 - data.long_share)
    return [phase for phase in (short, Phase(length=data.long_length, fraction=data.long_share)) if phase.fraction]


class SpeedTest:
    """Trains the learner of a plan to measure its speed. The learner is discarded.

    All processes of a group take part with equal numbers of steps.
    """

    def __init__(self, plan: PretrainPlan, scratch: Path, group: Group = ALONE) -> None:
        """Build the learner. Files of the test go to the folder `scratch`, which the caller removes."""
        # What an earlier test has freed would count as memory of before, and hide what this one takes.
        memory.release()
        self.memory_before = resident_memory()
        started = time.perf_counter()
        self.plan = plan
        self.scratch = scratch
        self.group = group
        self.learner = build_learner(plan)
        self.parameters = sum(weight.numel() for weight in self.learner.parameters())
        self.building_seconds = time.perf_counter() - started
        self.trainer: Trainer | None = None

    def speed(self, length: int, *, seconds: float) -> Speed:
        """Return the speed on sequences of at most `length` tokens, measured for about `seconds` seconds."""
        settings = self.plan.settings

        def begin(size: int) -> Trainer:
            training = replace(settings.training, steps=ENDLESS, checkpoint_every=0)
            loader = self.loader(length, batch=size)
            if self.trainer is not None and self.group.size > 1:  # a learner can be spread over processes only once
                self.learner = build_learner(self.plan)
            self.trainer = Trainer(self.learner, loader, settings.optimizer, training, self.scratch, self.group)
            return self.trainer

        return probe(begin, batch=settings.data.batch, seconds=seconds, turns=turns(self.plan))

    def checkpoint_seconds(self) -> float:
        """Return the seconds for writing a checkpoint of the last trained learner."""
        if self.trainer is None:
            raise ValueError("there is nothing to write before a speed was measured")
        started = time.perf_counter()
        self.trainer.save()
        return time.perf_counter() - started

    def loader(self, length: int, *, batch: int) -> PretrainingLoader | Stages:
        """Return the loader of a test, with `batch` examples a step."""
        settings = self.plan.settings
        data = replace(settings.data, batch=batch, pool=min(settings.data.pool, POOL))
        return endless(replace(self.plan, settings=replace(settings, data=data)), length).part(self.group.part)


def turns(plan: PretrainPlan) -> int:
    """Return the steps after which those of a test repeat: with a curriculum, its objectives take turns."""
    return 1 if plan.settings.data.curriculum == "together" else len(plan.objectives)


def endless(plan: PretrainPlan, length: int) -> PretrainingLoader | Stages:
    """Return the loader of a test, which sees all objectives: the first stage of a curriculum may have only one."""
    loader = plan.loader(length=length)
    loader.pace = Pace(planned=0)
    return loader
