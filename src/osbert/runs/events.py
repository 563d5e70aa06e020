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
