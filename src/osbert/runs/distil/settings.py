"""The settings of a distillation: those of a fine-tuning, and what the student learns of the teacher."""

from __future__ import annotations

import math
from dataclasses import dataclass

from osbert.interop.opening import Opening
from osbert.runs.file_options import LabelledOptions
from osbert.runs.finetune.settings import Defaults, FinetuneOptimizer, FinetuneSettings, ScoreSettings


@dataclass(frozen=True, kw_only=True)
class LessonSettings:
    """What the student is, and what it learns of the teacher.

    The loss is (1 - soft) x the task's own + soft x that of the teacher's outputs + states x that of its states.
    """

    layers: int = 0
    """Layers of the student, evenly chosen from the teacher's, whose embeddings and head are copied; 0 for half of
    them. Not with --student."""
    soft: float = 0.5
    """Part of the teacher's outputs in the loss, from 0 to 1; the rest is that of the labels, where a row has one."""
    temperature: float = 2.0
    """What the outputs of both are divided by before they are compared (Hinton et al. 2015): the higher, the more the
    student learns of the answers that the teacher thinks unlikely."""
    states: float = 0.0
    """Weight of 1 - the cosine of the last layer's states and the teacher's (Sanh et al. 2019), such as 1, for which
    the teacher works in each step; 0 for none. Not for a student with a vocabulary of its own."""
    dev: str = ""
    """The file with the development rows, in place of those in the data."""
    length: int = 0
    """Most tokens in a sequence of the student; 0 for the teacher's."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        for name in ("layers", "length"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if not 0 <= self.soft <= 1:
            raise ValueError(f"soft must be from 0 to 1, not {self.soft:g}")
        for name in ("temperature", "states"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name):g}")
        if not self.temperature:
            raise ValueError("temperature must be above 0")
        if not (self.soft or self.states):
            raise ValueError(
                "soft and states are both 0: nothing is learnt of the teacher (osbert finetune needs none)"
            )


@dataclass(frozen=True, kw_only=True)
class DistilOptimizer(FinetuneOptimizer):
    """AdamW, at the learning rate of a student: one with layers left out has more to mend than a whole encoder."""

    learning_rate: float = 1e-4
    """Learning rate at its peak, after the warm-up."""


@dataclass(frozen=True, kw_only=True)
class DistilOptions:
    """The settings of a distillation, by table, as the command line has them."""

    distil: LessonSettings
    training: FinetuneSettings
    optimizer: DistilOptimizer
    scores: ScoreSettings
    defaults: Defaults
    file: LabelledOptions


@dataclass(frozen=True, kw_only=True)
class DistilSettings(DistilOptions):
    """The settings of a call: also how the folders of the teacher and the student are opened."""

    opening: Opening
