"""The settings of fine-tuning: training, scores, several runs and optimiser, with the defaults of the paper."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from osbert import recipe
from osbert.errors import Problems
from osbert.training.optimizer import OptimizerSettings
from osbert.training.settings import Precision, TrainingSettings

Kind = Literal["full", "none", "adapters", "lora"]

RANKS = {"full": 0, "none": 0, "adapters": 64, "lora": 8}
"""Default bottleneck width of adapters and rank of LoRA, by kind of tuning."""

GRIDS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "paper": {
        "training.batch": (16, 32),
        "optimizer.learning_rate": (5e-5, 3e-5, 2e-5),
        "training.epochs": (2, 3, 4),
    },
    "glue": {
        "training.batch": (32,),
        "optimizer.learning_rate": (5e-5, 4e-5, 3e-5, 2e-5),
        "training.epochs": (3,),
    },
}
"""The grids of the paper (all combinations): appendix A.3, and section 4.1 for GLUE."""

PERIOD = re.compile(r"(\d+) steps?|(\d+(?:\.\d+)?) epochs?")
"""The format of the interval between two scores."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """How defaults are chosen. The recipe of a run stores the chosen values."""

    settings: Literal["auto", "paper"] = "auto"
    """Defaults of batch, epochs and learning rate. paper: 32, 3 and 3e-5. auto: few-shot learning (--few-shot) below
    100 texts with one class each, below 200 texts for each of three or more classes or for each label of multilabel,
    and below 20,000 pairs for a sentence encoder. Otherwise as paper, with 1e-4 for encoders at most 512 wide; but if
    there would be fewer than 200 steps, a smaller batch (down to 8), more epochs (up to 10) and 5e-5; for tags fewer
    than 600 steps and up to 50 epochs. An encoder that was pretrained on few tokens gets more steps, more epochs and a
    higher learning rate. A setting that is given changes no other one."""


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """Additional parts of the run's report. They do not change the run."""

    learning_curve: bool = False
    """Fine-tune on 1/8, 1/4 and 1/2 of the training rows afterwards, and show the scores by number of rows. To add the
    curve to a finished run, repeat its command with this option."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """The settings of training. The defaults are from the grid of the BERT paper (appendix A.3)."""

    epochs: int = 3
    """Passes over the training rows. By default more if there are few rows (--settings)."""
    few_shot: Literal["auto", "none", "linear", "linear-first", "contrastive"] = "none"
    """How to learn from few rows. linear: fit one layer to the encoder's sentence vectors, or for tags to the states
    of words, in seconds. linear-first: fine-tune encoder and layer from there (Kumar et al. 2022), for pairs beside
    it, and keep the better of both. contrastive: first tune the vectors so that those of one label are close (after
    SetFit, Tunstall et al. 2022). none: fine-tune. auto (default): the best method for these rows (--settings)."""
    batch: int = 32
    """Examples per optimiser step. With --context document: whole documents, about this many sentences in total.
    By default fewer if there are few rows (--settings)."""
    micro_tokens: int = 4096
    """Most tokens in one pass through the model. A step with more tokens is split, with the same gradient. The passes
    of contrastive, whose loss compares all rows of a step, are computed twice. No effect with --few-shot contrastive,
    whose step is one pass."""
    seed: int = 0
    """Seed of the new weights, the order of the rows and the dropout."""
    dropout: float = 0.1
    """Dropout probability in the whole encoder and before the task's layer; by default that of pretraining."""
    recurrent: int = 0
    """Layers of a bidirectional LSTM on top of the encoder (Table 5, + BiLSTM), newly initialised unless the encoder
    has them; 0 for no change. They need a higher learning rate than 3e-5, or many epochs."""
    tuning: Kind = "full"
    """What is trained besides the task's layer. full: the whole encoder; none: at most its pooler, so that the last
    layer's states are fixed features; adapters: small layers in its blocks (Houlsby et al. 2019); lora: low-rank
    changes of its query and value matrices (Hu et al. 2021). For adapters and lora only the tuned weights are stored, a
    few megabytes; the run folder then needs the model that it was tuned on."""
    rank: int = 0
    """Width of adapters or rank of lora; 0 for 64 and 8."""
    merge: bool = False
    """After tuning adapters or lora, write a complete model, which needs no other folder."""
    auxiliary: float = 0.0
    """Weight of an added language-model loss (Radford et al. 2018, equation 5; there 0.5): the mean over all next
    pieces of a sequence, special ones included. For left-to-right models such as GPT; 0 for none."""
    frozen: int = 0
    """Number of lowest layers that are frozen, together with the embeddings; 0 for none."""
    precision: Precision = "auto"
    """Precision of matrix products in training. auto: bf16 if the processor supports it. Scores are always fp32."""
    device: str = "auto"
    """cpu, cuda or cuda:N. auto: a GPU if there is one."""
    deduplicate: bool = False
    """Leave out training rows whose text is also in the development rows."""
    log_every: int = 10
    """Steps between two lines of metrics.jsonl and of progress."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    track: tuple[str, ...] = ()
    """Trackers that receive the values of metrics.jsonl, separated by commas: tensorboard, mlflow, wandb."""

    def __post_init__(self) -> None:
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
        """Yield a message for each setting that has no effect beside another one."""
        unused = {"full": ("rank", "merge"), "none": ("rank", "merge", "frozen")}
        idle: dict[str, tuple[str, ...]] = {"tuning": unused.get(self.tuning, ("frozen",))}
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
        """Whether the sentence vectors are tuned by a contrastive loss first."""
        return self.few_shot not in ("none", "linear", "linear-first")

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
            # The weights of the best epoch are kept by the newest checkpoint on disk, which must not be one behind.
            checkpoint_writing="foreground",
        )


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """When the model is scored on the development rows, early stopping, and which weights are kept."""

    evaluate_every: str = "1 epoch"
    """Interval between scores on the development rows: "200 steps" or "0.25 epochs". The model is also scored after
    the last step."""
    patience: int = 0
    """Early stopping: the run ends after this many scores in a row without an improvement of the task's criterion; 0 to
    train to the last epoch. The learning-rate schedule is that of all epochs."""
    keep: Literal["best", "last", "better"] = "best"
    """Which weights are kept: those with the best score, those of the last step, or those of the better of the first
    score and the last. By default, without --patience, the last ones in a run of one task with fewer than 200
    development rows, too few to choose by; with --few-shot linear-first the better of the linear layer and the last."""
    data_map: bool = False
    """At each score, also compute the probability of each training row's label, and list rows whose label may be wrong
    in data_map.csv and the report (Swayamdipta et al. 2020). It takes a forward pass over all training rows."""

    def __post_init__(self) -> None:
        match = PERIOD.fullmatch(self.evaluate_every)
        if not match or not any(float(number) for number in match.groups(default="0")):
            raise ValueError(f'evaluate_every must be as "200 steps" or "0.25 epochs", not "{self.evaluate_every}"')
        if self.patience < 0:
            raise ValueError(f"patience must be 0 or more, not {self.patience}")

    def period(self, steps_per_epoch: int) -> Fraction:
        """Return the number of steps between two scores, which may be a fraction.

        >>> ScoreSettings(evaluate_every="0.25 epochs").period(10), ScoreSettings().period(10)
        (Fraction(5, 2), Fraction(10, 1))
        """
        match = PERIOD.fullmatch(self.evaluate_every)
        assert match is not None  # __post_init__ has looked
        return Fraction(match[1]) if match[1] else Fraction(match[2]) * steps_per_epoch

    def chooses(self, training: FinetuneSettings) -> bool:
        """Return whether the weights that are kept are those of the best of several scores.

        An interval in steps counts as several.

        >>> ScoreSettings().chooses(FinetuneSettings(epochs=3)), ScoreSettings().chooses(FinetuneSettings(epochs=1))
        (True, False)
        """
        if self.keep == "last" or training.few_shot == "linear":
            return False
        match = PERIOD.fullmatch(self.evaluate_every)
        once = match is not None and bool(match[2]) and Fraction(match[2]) >= training.epochs
        return training.few_shot != "none" or not once  # few-shot learning is scored before its first step, too


def refuse_conflicts(heading: str, conflicts: Mapping[str, object]) -> None:
    """Raise UserError that lists the settings which exclude each other; `conflicts`: messages, and whether each holds.

    >>> refuse_conflicts("--tuning lora cannot be used with these settings", {"--rank 0 has no effect.": False})
    """
    problems = Problems(heading=heading)
    for message in (message for message, holds in conflicts.items() if holds):
        problems.add(message, code="options-exclude-each-other")
    problems.stop_if_any()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Several runs instead of one. The best one on the development rows becomes the model."""

    seeds: int = 0
    """Number of seeds, from --seed on; median, mean and standard deviation are reported. 0 for one run."""
    search: Literal["none", "paper", "glue", "optuna"] = "none"
    """Settings to try, with every seed: paper (batch 16, 32; learning rate 5e-5, 3e-5, 2e-5; epochs 2, 3, 4), glue
    (batch 32, 3 epochs, learning rate 5e-5, 4e-5, 3e-5, 2e-5) or optuna (as many as --trials, each proposed from the
    results before it)."""
    trials: int = 0
    """How many settings optuna tries."""
    folds: int = 0
    """Cross-validation with this many folds, each predicted by a run on the others; mean, deviation and interval of the
    scores are reported. The model is that of one more run, as without folds."""
    group: str = ""
    """Column for grouped folds, such as patient or author: rows with the same value go into one fold."""

    def __post_init__(self) -> None:
        if self.folds and (self.folds < 2 or self.seeds or self.search != "none"):
            raise ValueError("folds must be 2 or more, and go with neither seeds nor search")
        if self.group and not self.folds:
            raise ValueError(f"group = {self.group} does nothing without folds")
        for name in ("seeds", "trials"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.search == "optuna" and not self.trials:
            raise ValueError("optuna needs a number of settings: --trials 20")
        if self.search != "optuna" and self.trials:
            raise ValueError(f"trials = {self.trials} does nothing without --search optuna (several runs: --seeds N)")

    @property
    def wanted(self) -> bool:
        """Return whether there is more than one run."""
        return self.search != "none" or self.seeds > 1 or self.folds > 0

    def table(self) -> dict[str, Any]:
        """Return the settings as they are kept with a run; those of folds only where there are some."""
        table = recipe.as_table(self)
        return {name: value for name, value in table.items() if value or name not in ("folds", "group")}

    @property
    def varied(self) -> tuple[str, ...]:
        """Return the dotted names of the settings that the search decides."""
        return () if self.search == "none" else tuple(GRIDS["paper"])

    def check(self, given: Iterable[str]) -> None:
        """Raise UserError when settings were `given` that the search decides."""
        twice = sorted({*given} & {*self.varied})
        conflicts = {f"--{name} and --search cannot be combined. Remove one of the two.": True for name in twice}
        refuse_conflicts(f"--search {self.search} tries settings that are given as well", conflicts)


@dataclass(frozen=True, kw_only=True)
class FinetuneOptimizer(OptimizerSettings):
    """AdamW, with the learning rate and warm-up of fine-tuning (appendix A.3)."""

    learning_rate: float = 3e-5
    """Peak learning rate, after the warm-up. Usual values: 5e-5, 3e-5 and 2e-5."""
    warmup: float = 0.1
    """Fraction of the steps over which the learning rate rises (warm-up)."""
