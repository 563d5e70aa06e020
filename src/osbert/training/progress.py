"""What a step did and where the run stands; and the sums that make it, kept on the device until they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.step import Cursor
from osbert.training.distributed import Group


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What step `step` (from 1) of `steps` did, and where the run stands.

    `losses` and `accuracies`: this step's means by objective; accuracies are missing where right and wrong make no
    sense. `ratios`: further figures of this step, by objective and name, such as "replaced.recall". `weights`: the
    losses' factors in the sum that a step minimises; 1 for one that is not there. `skipped`: a loss or the gradient was
    not finite and the weights were left alone. `tokens`, `seconds`, `loader_seconds` (waiting
    for the loader) and `skipped_steps` count from the beginning of the run, what was done before a resumption included;
    evaluation and checkpoints are not in `seconds`.
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
    weights: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Return what the step minimised: the sum of the objectives' weighted means."""
        return sum(self.weights.get(name, 1.0) * loss for name, loss in self.losses.items())

    def __str__(self) -> str:
        """Return where the run stands, so that `watch=print` is readable."""
        return f"step {self.step:,} of {self.steps:,}: loss {self.loss:.3f}"


@dataclass(kw_only=True)
class Counters:
    """What a run has done so far; saved with each checkpoint.

    `unusable`: skipped steps just before now, in a row. `halvings`: how often micro-batches have been halved because
    memory ran out.
    """

    tokens: int = 0
    seconds: float = 0.0
    loader_seconds: float = 0.0
    skipped_steps: int = 0
    unusable: int = 0
    halvings: int = 0


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean loss over some batches, and the accuracy (None if that makes no sense).

    `weight`: the factor of the mean in what a step minimises. `ratios`: further figures by name; one that is a share of
    nothing is not there.
    """

    loss: float
    accuracy: float | None = None
    weight: float = 1.0
    ratios: Mapping[str, float] = field(default_factory=dict)


class Outcome(Protocol):
    """What a learner returns for each objective, as models/contract.py's Loss."""

    @property
    def total(self) -> Tensor:
        """Return the summed loss ()."""
        ...

    @property
    def hits(self) -> Tensor | None:
        """Return how many labels were predicted rightly ()."""
        ...

    @property
    def weight(self) -> float:
        """Return the factor of the mean in what a step minimises."""
        ...

    @property
    def ratios(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """Return further figures by name, each as two sums (), the numerator and the denominator."""
        ...


@dataclass(kw_only=True)
class Census:
    """What some micro-batches hold, over all processes once their counts are added.

    `passes`: how many there are in the process that has most; `fewest`: in the one that has fewest. `counts`: what each
    objective's loss is divided by; `labels`: how many labels there are; `kinds`: are they per token, and their type.
    """

    passes: int = 0
    fewest: int = 0
    tokens: int = 0
    counts: dict[str, float] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, tuple[bool, torch.dtype]] = field(default_factory=dict)

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> Census:
        """Count some batches."""
        census = cls()
        for batch in batches:
            census.passes += 1
            census.tokens += batch.size
            for name, target in batch.targets.items():
                census.counts[name] = census.counts.get(name, 0.0) + target.count
                census.labels[name] = census.labels.get(name, 0) + len(target.labels)
                census.kinds[name] = (target.per_token, target.labels.dtype)
        return census

    @classmethod
    def joined(cls, parts: Sequence[Census]) -> Census:
        """Return the census of all processes' batches together."""
        return cls(
            passes=max(part.passes for part in parts),
            fewest=min(part.passes for part in parts),
            tokens=sum(part.tokens for part in parts),
            counts=added(part.counts for part in parts),
            labels=added(part.labels for part in parts),
            kinds={name: kind for part in parts for name, kind in part.kinds.items()},
        )


@dataclass(kw_only=True)
class Sums:
    """Sums over micro-batches by objective, on the device until they are read. `census`: of the whole step."""

    census: Census
    totals: dict[str, Tensor] = field(default_factory=dict)
    hits: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, Tensor] = field(default_factory=dict)
    """The two sums (2,) of each further figure, by objective and name, such as "replaced.recall"."""

    def add(self, outcomes: Mapping[str, Outcome]) -> None:
        """Add what the learner returned for a batch."""
        for name, outcome in outcomes.items():
            self.totals[name] = self.totals.get(name, 0) + outcome.total.detach().float()
            self.weights[name] = outcome.weight
            if outcome.hits is not None:
                self.hits[name] = self.hits.get(name, 0) + outcome.hits.detach().float()
            for figure, sums in outcome.ratios.items():
                key = f"{name}.{figure}"
                self.ratios[key] = self.ratios.get(key, 0) + torch.stack(sums).detach().float()

    def read(self, group: Group, *more: Tensor) -> tuple[dict[str, Mean], list[float]]:
        """Return the means over all processes, and the first one's values of `more`; one transfer from the device."""
        over = {f"{key} {part}": sums[part] for key, sums in self.ratios.items() for part in (0, 1)}
        columns = [*self.totals.values(), *self.hits.values(), *over.values(), *more]
        values = iter(torch.stack(columns).tolist() if columns else [])
        own = [{name: next(values) for name in sums} for sums in (self.totals, self.hits, over)]
        rest = list(values)
        parts = group.gathered((own, rest), "losses")
        totals, hits, sums = (added(part[0][place] for part in parts) for place in range(3))
        losses = {name: total / (self.census.counts[name] or 1.0) for name, total in totals.items()}
        accuracies = {name: right / (self.census.labels[name] or 1) for name, right in hits.items()}
        means = {
            name: Mean(
                loss=loss,
                accuracy=accuracies.get(name),
                weight=self.weights.get(name, 1.0),
                ratios={
                    key.removeprefix(f"{name}."): sums[f"{key} 0"] / sums[f"{key} 1"]
                    for key in self.ratios
                    if key.startswith(f"{name}.") and sums[f"{key} 1"]
                },
            )
            for name, loss in losses.items()
        }
        return means, parts[0][1]


Number = TypeVar("Number", int, float)


def added(parts: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    """Return the sums by name, in the order of the parts and of their names."""
    sums: dict[str, Number] = {}
    for part in parts:
        for name, value in part.items():
            sums[name] = sums[name] + value if name in sums else value
    return sums
