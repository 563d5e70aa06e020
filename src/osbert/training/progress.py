"""What a step did and where the run stands; and the sums that make it, kept on the device until they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.step import Cursor


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What step `step` (from 1) of `steps` did, and where the run stands.

    `losses` and `accuracies`: this step's means by objective; accuracies are missing where right and wrong make no
    sense. `skipped`: a loss or the gradient was not finite and the weights were left alone. `tokens`, `seconds`,
    `loader_seconds` (waiting for the loader) and `skipped_steps` count from the beginning of the run, what was done
    before a resumption included; evaluation and checkpoints are not in `seconds`.
    """

    step: int
    steps: int
    losses: Mapping[str, float]
    accuracies: Mapping[str, float]
    learning_rate: float
    gradient_norm: float
    skipped: bool
    cursor: Cursor
    tokens: int
    seconds: float
    loader_seconds: float
    skipped_steps: int

    @property
    def loss(self) -> float:
        """Return what the step minimised: the sum of the objectives' means."""
        return sum(self.losses.values())


@dataclass(kw_only=True)
class Counters:
    """What a run has done so far; saved with each checkpoint. `unusable`: skipped steps just before now, in a row."""

    tokens: int = 0
    seconds: float = 0.0
    loader_seconds: float = 0.0
    skipped_steps: int = 0
    unusable: int = 0


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean loss over some batches, and the share predicted rightly (None where that makes no sense)."""

    loss: float
    accuracy: float | None = None


class Outcome(Protocol):
    """What a learner returns for each objective, as models/heads.py's Loss."""

    @property
    def total(self) -> Tensor:
        """Return the summed loss ()."""
        ...

    @property
    def hits(self) -> Tensor | None:
        """Return how many labels were predicted rightly ()."""
        ...


@dataclass
class Sums:
    """Sums over micro-batches by objective. `counts`: what the losses are divided by; `labels`: how many there are."""

    counts: dict[str, float] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    totals: dict[str, Tensor] = field(default_factory=dict)
    hits: dict[str, Tensor] = field(default_factory=dict)

    def expect(self, batch: Batch) -> None:
        """Count the labels of a batch."""
        for name, target in batch.targets.items():
            self.counts[name] = self.counts.get(name, 0.0) + target.count
            self.labels[name] = self.labels.get(name, 0) + len(target.labels)

    def add(self, outcomes: Mapping[str, Outcome]) -> None:
        """Add what the learner returned for a batch."""
        for name, outcome in outcomes.items():
            self.totals[name] = self.totals.get(name, 0) + outcome.total.detach().float()
            if outcome.hits is not None:
                self.hits[name] = self.hits.get(name, 0) + outcome.hits.detach().float()

    def read(self, *more: Tensor) -> tuple[dict[str, Mean], list[float]]:
        """Return the means, and the values of `more`, in a single transfer from the device."""
        columns = [*self.totals.values(), *self.hits.values(), *more]
        values = iter(torch.stack(columns).tolist() if columns else [])
        losses = {name: next(values) / (self.counts[name] or 1.0) for name in self.totals}
        accuracies = {name: next(values) / (self.labels[name] or 1) for name in self.hits}
        means = {name: Mean(loss=loss, accuracy=accuracies.get(name)) for name, loss in losses.items()}
        return means, list(values)
