"""The events of a run that trains, besides Notice and the trainer's Progress, which comes after every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osbert.training.tracking import summary


@dataclass(frozen=True, kw_only=True)
class TrainingStart:
    """The first step comes next: `done` of `steps` were taken before. `processor`: its name and the precision."""

    processor: str
    done: int
    steps: int

    def __str__(self) -> str:
        """Return one line, so that `watch=print` is readable."""
        return f"training on {self.processor}: {self.done:,} of {self.steps:,} steps done"


class RunEnd:
    """Event: one of several runs has ended, and its own events have said how."""

    def __str__(self) -> str:
        """Return one line, so that `watch=print` is readable."""
        return "a run has ended"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A line of metrics.jsonl: means over the steps since the line before, or on held-out text.

    `values`: the line, such as {"step": 100, "mlm.loss": 6.3}. `of`: "training", after the last step's Progress; in
    pretraining also "held_out", "held_out_before" for the held-out text of the run that this one continues, and
    "general" for general text.
    """

    of: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the line for people, so that `watch=print` is readable."""
        prefix = "" if self.of == "training" else f"{self.of}."
        return f"step {self.values['step']:,}  {self.of.replace('_', ' ')}: {summary(self.values, prefix=prefix)}"


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The end of an epoch, or of a part of one: mean training loss, scores on the development rows, and whether they
    are the best so far.

    `epoch`: epochs so far, such as 1.25 if scores are more frequent. `collapsed`: the one prediction for all
    development rows although their labels differ; "" if predictions differ.
    """

    epoch: float
    step: int
    loss: float
    metrics: dict[str, float]
    best: bool
    seconds: float
    collapsed: str = ""

    @property
    def place(self) -> str:
        """The number of epochs so far, as text."""
        return f"{round(self.epoch, 2):g}"

    def __str__(self) -> str:
        """Return one line for the console, printed while later epochs may still be better."""
        return format_epoch(self) + ("  best so far" if self.best and self.metrics else "")


def format_epoch(epoch: Epoch) -> str:
    """Return one line on an epoch, without the scores of single classes ("f1/label")."""
    scores = f"  dev {scores_line(epoch.metrics)}" if epoch.metrics else ""
    return f"epoch {epoch.place}  training loss {epoch.loss:.4f}{scores}"


def scores_line(metrics: Mapping[str, float]) -> str:
    """Return scores as one line, without those of single classes."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items() if "/" not in name)
