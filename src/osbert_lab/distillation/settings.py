"""The settings of a distillation: those of a fine-tuning, and those of the student and the losses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from osbert.errors import Problems, UserError
from osbert.interop.opening import Opening
from osbert.runs.file_options import LabelledOptions
from osbert.runs.finetune.settings import Defaults, FinetuneOptimizer, FinetuneSettings, ScoreSettings
from osbert.training.tracking import require_trackers

IDLE = {"few_shot": "none", "tuning": "full", "merge": False, "rank": 0, "recurrent": 0, "auxiliary": 0.0}
"""Settings of fine-tuning that do not apply to a distillation, with the only allowed value."""


@dataclass(frozen=True, kw_only=True)
class LessonSettings:
    """The student and the losses of a distillation.

    loss = (1 - soft) x task loss + soft x loss on the teacher's outputs + states x loss on its hidden states.
    """

    layers: int = 0
    """Layers of the student, evenly spaced layers of the teacher, whose embeddings and head are copied, too; 0 for half
    of them. Not with --student."""
    soft: float = 0.5
    """Weight of the loss on the teacher's outputs, from 0 to 1; the loss on the labels has the rest."""
    temperature: float = 2.0
    """Temperature that divides the logits of both models (Hinton et al. 2015). The higher it is, the more the student
    learns about labels that the teacher finds unlikely."""
    states: float = 0.0
    """Weight of 1 - cosine of the last hidden states of both models (Sanh et al. 2019), such as 1; 0 for none. The
    teacher then runs in each step. Not for a student with another vocabulary."""
    dev: str = ""
    """File with the development rows, instead of those in the data."""
    length: int = 0
    """Most tokens in a sequence of the student; 0 for the teacher's number."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers out of range."""
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
            raise ValueError("soft and states are both 0, so nothing would be learned from the teacher")


@dataclass(frozen=True, kw_only=True)
class StaticVectorSettings:
    """Static vectors (--to static): a vector for each piece."""

    dimensions: int = 256
    """With --to static: numbers of a vector, the main components of the encoder's; at most its width."""
    sif: float = 1e-4
    """With --to static: a in the weight a / (a + p) of a piece of frequency p, by which frequent ones count less (Arora
    et al. 2017); 0 for equal weights. Frequencies are those in --texts, or follow the rank in the vocabulary."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers out of range."""
        if self.dimensions < 1:
            raise ValueError(f"dimensions must be at least 1, not {self.dimensions}")
        if not 0 <= self.sif < math.inf:
            raise ValueError(f"sif must be 0 or more, not {self.sif:g}")


@dataclass(frozen=True, kw_only=True)
class DistilOptimizer(FinetuneOptimizer):
    """AdamW with a higher learning rate: a student that lacks layers changes more than a whole encoder."""

    learning_rate: float = 1e-4
    """Peak learning rate, after the warm-up."""


@dataclass(frozen=True, kw_only=True)
class DistilOptions:
    """The settings of a distillation on the command line, by table."""

    distil: LessonSettings
    static: StaticVectorSettings
    training: FinetuneSettings
    optimizer: DistilOptimizer
    scores: ScoreSettings
    defaults: Defaults
    file: LabelledOptions


@dataclass(frozen=True, kw_only=True)
class DistilSettings(DistilOptions):
    """The settings of a call, with those for opening the folders of teacher and student."""

    opening: Opening

    def check_static(self, *, student: bool) -> None:
        """Raise UserError for settings that do nothing where static vectors are computed, without training.

        `student`: whether an encoder is named as the student.
        """
        parts = {name: part for name, part in vars(self).items() if name not in ("static", "opening")}
        changed = [name for name, part in parts.items() if part != type(part)()]
        if student or changed:
            which = "--student" if student else f"settings of {', '.join(changed)}"
            raise UserError(
                f"--to static computes vectors, without training: {which} would do nothing. Remove them.",
                code="options-exclude-each-other",
            )

    def check(self, *, student: bool) -> None:
        """Raise UserError for settings that do not apply to the training of a student or exclude each other.

        `student`: whether an encoder is named as the student.
        """
        problems = Problems(heading="This distillation cannot begin")
        if self.static != StaticVectorSettings():
            problems.add(
                "--dimensions and --sif are settings of --to static. Remove them, or add --to static.",
                code="options-exclude-each-other",
            )
        if student and self.distil.layers:
            problems.add(
                "--layers takes layers of the teacher, and --student another encoder. Remove one of the two.",
                code="options-exclude-each-other",
            )
        for name, only in IDLE.items():
            if (value := getattr(self.training, name)) not in (only, "auto"):
                option = name.replace("_", "-")
                problems.add(
                    f"--{option} {value} does not apply to a distillation. Remove it; osbert finetune can train the "
                    "student further afterwards.",
                    code="options-exclude-each-other",
                )
        require_trackers(self.training.track, problems)
        problems.stop_if_any()
