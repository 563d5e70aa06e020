"""How long and how a fine-tuning goes, and its optimiser, with the defaults of the paper."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from osbert.training.optimizer import OptimizerSettings
from osbert.training.settings import Precision, TrainingSettings

Kind = Literal["full", "adapters", "lora"]

RANKS = {"full": 0, "adapters": 64, "lora": 8}
"""The width of a bottleneck, and the rank of a change, where none is given."""

PERIOD = re.compile(r"(\d+) steps?|(\d+(?:\.\d+)?) epochs?")
"""How the time between two scores is written."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Which values settings have that are not given; the recipe of a run keeps the values themselves."""

    settings: Literal["auto", "paper"] = "auto"
    """Batch, epochs and learning rate where they are not given. paper: 32, 3 and 3e-5. auto: few-shot learning for
    under 100 texts with a class each, if none of these is given (--few-shot); else the same as paper, but if neither
    batch nor epochs is given and these make fewer than 200 steps, a smaller batch (down to 8), more epochs (up to 10)
    and 5e-5. An encoder that was pretrained on few tokens gets more steps, more epochs and a higher rate."""


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """What the run's report shows besides; it changes nothing of the run."""

    learning_curve: bool = False
    """Fine-tune on 1/8, 1/4 and 1/2 of the training rows afterwards, and show the scores by the number of rows. A
    finished run gets the curve when the same command is given again with it."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """How long and how fine-tuning goes. The defaults are of the grid that works everywhere (appendix A.3)."""

    epochs: int = 3
    """Passes over the training rows; more where the rows are few and no number is given (--settings)."""
    few_shot: Literal["auto", "none", "linear", "contrastive"] = "none"
    """How to learn from a few rows: linear fits one layer to the encoder's sentence vectors, which takes seconds;
    contrastive first tunes the vectors so that those of a label lie together (after SetFit, Tunstall et al. 2022); none
    is fine-tuning. auto, the same as to give nothing: what does best at this number of rows (--settings)."""
    batch: int = 32
    """Examples per optimiser step. With --context document: whole documents, about this many sentences in total.
    Fewer where the rows are few and no number is given (--settings)."""
    micro_tokens: int = 4096
    """Most tokens in one pass through the model; a step with more is split, with the same gradient. It does nothing
    where the loss compares all rows of a step, as with --few-shot contrastive: such a step is one pass."""
    seed: int = 0
    """Decides the new weights, the order of the rows and the dropout."""
    dropout: float = 0.1
    """Dropout probability in the whole encoder and before the task's layer; by default that of pretraining."""
    recurrent: int = 0
    """Layers of a bidirectional LSTM put on top of the encoder (Table 5, + BiLSTM), with fresh weights where it has not
    as many; 0 leaves it as it is. Give them a higher learning rate than 3e-5, or many epochs."""
    tuning: Kind = "full"
    """What learns besides the task's layer: the full encoder; adapters put into its blocks (Houlsby et al. 2019); or
    changes of low rank of its query and value matrices (lora, Hu et al. 2021). Of adapters and lora only what was tuned
    is kept, a few megabytes; the run folder then needs the model that it was tuned on."""
    rank: int = 0
    """Width of the adapters, or rank of the changes; 0 for 64 and 8."""
    merge: bool = False
    """Write a whole model, which needs no other folder, also where adapters or lora were tuned."""
    auxiliary: float = 0.0
    """Weight of the language-model loss that is added to the task's (Radford et al. 2018, equation 5; there 0.5): the
    mean over all next pieces of a sequence, special ones included. For models that look left, as GPT; 0 for none."""
    frozen: int = 0
    """Lowest layers that do not learn, nor do the embeddings; 0 for none."""
    precision: Precision = "auto"
    """Precision of matrix products in training; auto is bf16 where the processor has it. Scores are always fp32."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto is a GPU where there is one."""
    deduplicate: bool = False
    """Leave out the training rows whose text stands in the development rows, too."""
    log_every: int = 10
    """Steps between two lines of metrics.jsonl and of progress."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    track: tuple[str, ...] = ()
    """Programs that get the figures of metrics.jsonl, with commas between: tensorboard, mlflow, wandb."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        counts = ("epochs", "batch", "micro_tokens", "log_every", "checkpoint_every")
        none = ("seed", "recurrent", "rank", "frozen")
        for name, least in (*((count, 1) for count in counts), *((count, 0) for count in none)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.seed >= 2**63:  # torch's own limit is 2**64, and parts of a model are drawn from the seeds after it
            raise ValueError(f"seed must be below {2**63}, not {self.seed}")
        if not 0 <= self.auxiliary < math.inf:
            raise ValueError(f"auxiliary must be 0 or more, not {self.auxiliary}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        if conflicts := [*self._conflicts()]:
            raise ValueError(conflicts[0])

    def _conflicts(self) -> Iterator[str]:
        """Yield the settings that do nothing beside another one."""
        idle: dict[str, tuple[str, ...]] = {"tuning": ("rank", "merge") if self.tuning == "full" else ("frozen",)}
        if self.few_shot not in ("auto", "none"):
            idle["few_shot"] = ("rank", "merge", "frozen", "recurrent", "auxiliary")
            if self.tuning != "full":
                yield f"tuning = {self.tuning} does nothing with few_shot = {self.few_shot}"
        for setting, names in idle.items():
            for name in names:
                if getattr(self, name):
                    yield f"{name} = {getattr(self, name)} does nothing with {setting} = {getattr(self, setting)}"

    @property
    def contrastive(self) -> bool:
        """Return whether the vectors of texts are tuned by their labels first."""
        return self.few_shot not in ("none", "linear")

    @property
    def adapters(self) -> int:
        """Return the width of the adapters that are tuned, 0 where none are."""
        return (self.rank or RANKS["adapters"]) if self.tuning == "adapters" else 0

    def training(self, steps_per_epoch: int) -> TrainingSettings:
        """Return the trainer's settings."""
        return TrainingSettings(
            steps=self.epochs * steps_per_epoch,
            precision=self.precision,
            device=self.device,
            seed=self.seed,
            log_every=self.log_every,
            checkpoint_every=self.checkpoint_every,
            evaluate_every=0,
            keep=1,
        )


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """When a run is scored on the development rows, when the scores end it, and whose weights are kept."""

    evaluate_every: str = "1 epoch"
    """Time from one score on the development rows to the next: "200 steps" or "0.25 epochs". The last step is scored
    in any case."""
    patience: int = 0
    """Scores in a row without a higher one, by the task's criterion, after which the run ends; 0 to train to the last
    epoch. The learning rate falls as if all epochs were trained."""
    keep: Literal["best", "last"] = "best"
    """Which weights are the model: those that scored best, or those of the last step."""
    data_map: bool = False
    """Compute at each score how probable the label of each training row is, too, and list the rows whose label may be
    wrong in data_map.csv and the report (Swayamdipta et al. 2020). It takes a pass over them without learning."""

    def __post_init__(self) -> None:
        """Refuse what is no time, and a patience that is none."""
        found = PERIOD.fullmatch(self.evaluate_every)
        if not found or not any(float(number) for number in found.groups(default="0")):
            raise ValueError(f'evaluate_every must be as "200 steps" or "0.25 epochs", not "{self.evaluate_every}"')
        if self.patience < 0:
            raise ValueError(f"patience must be 0 or more, not {self.patience}")

    def period(self, steps_per_epoch: int) -> Fraction:
        """Return the steps from one score to the next; they need not be whole.

        >>> ScoreSettings(evaluate_every="0.25 epochs").period(10), ScoreSettings().period(10)
        (Fraction(5, 2), Fraction(10, 1))
        """
        found = PERIOD.fullmatch(self.evaluate_every)
        assert found is not None  # __post_init__ has looked
        return Fraction(found[1]) if found[1] else Fraction(found[2]) * steps_per_epoch


@dataclass(frozen=True, kw_only=True)
class FinetuneOptimizer(OptimizerSettings):
    """AdamW, with the learning rate and warm-up of fine-tuning (appendix A.3)."""

    learning_rate: float = 3e-5
    """Learning rate at its peak, after the warm-up; 5e-5, 3e-5 and 2e-5 are the usual ones."""
    warmup: float = 0.1
    """Fraction of the steps in which the learning rate rises."""
