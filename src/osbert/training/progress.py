"""The results of a step and the state of the run; and the sums behind them, kept on the device until they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.step import Cursor
from osbert.models.contract import Loss
from osbert.training.distributed import Group


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The results of step `step` (from 1) of `steps`, and the state of the run after it.

    `losses` and `accuracies`: this step's means by objective; accuracies are missing if they make no sense for an
    objective. `ratios`: further figures of this step, by objective and name, such as "replaced.recall". `weights`: the
    losses' factors in the sum that a step minimises; 1 if missing. `skipped`: a loss or the gradient was
    not finite, so the weights were not changed. `tokens`, `seconds`, `loader_seconds` (waiting for
    the loader) and `skipped_steps` count from the beginning of the run, before any resumption; `seconds` excludes
    evaluation and checkpoints.
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
        """Return the loss that the step minimised: the weighted sum of the objectives' means."""
        return sum(self.weights.get(name, 1.0) * loss for name, loss in self.losses.items())

    def __str__(self) -> str:
        """Return the step and the loss as text, for `watch=print`."""
        return f"step {self.step:,} of {self.steps:,}: loss {self.loss:.3f}"


@dataclass(kw_only=True)
class Counters:
    """Totals of a run so far, saved in each checkpoint.

    `unusable`: number of consecutive skipped steps up to now. `halvings`: number of times that micro-batches were
    halved because memory ran out.
    """

    tokens: int = 0
    seconds: float = 0.0
    loader_seconds: float = 0.0
    skipped_steps: int = 0
    unusable: int = 0
    halvings: int = 0


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean loss over some batches, and the accuracy (None if it makes no sense).

    `weight`: the factor of the mean in what a step minimises. `ratios`: further figures by name, without those
    whose denominator is 0.
    """

    loss: float
    accuracy: float | None = None
    weight: float = 1.0
    ratios: Mapping[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class Census:
    """The counts of some micro-batches, of one process or joined of all.

    `passes`: micro-batches of the process with most; `fewest`: of the one with fewest. `counts`: the divisor of each
    objective's loss; `labels`: number of labels, without those of tokens or sequences all of whose weights are 0;
    `kinds`: whether they are per token, and their dtype.
    """

    passes: int = 0
    fewest: int = 0
    tokens: int = 0
    counts: dict[str, float] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, tuple[bool, torch.dtype]] = field(default_factory=dict)

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> Census:
        """Count the tokens and labels of one process's batches."""
        census = cls()
        for batch in batches:
            census.passes += 1
            census.fewest += 1
            census.tokens += batch.size
            for name, target in batch.targets.items():
                labels = len(target.labels)
                if target.weights is not None:
                    # The K labels of a soft target count together: its weights are probabilities, some of which may be
                    # 0. So a label counts if any of its token, or of its sequence, has a weight.
                    has_weight = target.index.new_zeros(batch.size, dtype=torch.bool)
                    has_weight[target.index[target.weights != 0]] = True
                    labels = int(has_weight[target.index].sum())
                census.counts[name] = census.counts.get(name, 0.0) + target.count
                census.labels[name] = census.labels.get(name, 0) + labels
                census.kinds[name] = (target.per_token, target.labels.dtype)
        return census

    @classmethod
    def combine(cls, parts: Sequence[Census]) -> Census:
        """Join the counts of all processes."""
        return cls(
            passes=max(part.passes for part in parts),
            fewest=min(part.passes for part in parts),
            tokens=sum(part.tokens for part in parts),
            counts=sum_by_name(part.counts for part in parts),
            labels=sum_by_name(part.labels for part in parts),
            kinds={name: kind for part in parts for name, kind in part.kinds.items()},
        )


@dataclass(kw_only=True)
class Sums:
    """Sums over micro-batches, kept on the device until read. `census` counts the whole step."""

    census: Census
    figures: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    """Each sum () by objective and figure: "loss", "hits", and both parts of a ratio, "recall 0" and "recall 1"."""
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, losses: Mapping[str, Loss]) -> None:
        """Add the learner's results for a batch."""
        for name, loss in losses.items():
            self.weights[name] = loss.weight
            sums = {"loss": loss.total} | ({} if loss.hits is None else {"hits": loss.hits})
            for ratio, parts in loss.ratios.items():
                sums |= {f"{ratio} {part}": parts[part] for part in (0, 1)}
            for figure, value in sums.items():
                # float(): sums of bf16 losses would lose small terms. No .item() here, which would wait for the GPU.
                key = (name, figure)
                self.figures[key] = self.figures.get(key, 0) + value.detach().float()

    def read(self, group: Group, *more: Tensor) -> tuple[dict[str, Mean], list[float]]:
        """Return the means over all processes, and the first process's `more`, in one transfer from the device."""
        columns = [*self.figures.values(), *more]
        # The only synchronisation of a step.
        values: list[float] = torch.stack(columns).tolist() if columns else []
        rest = values[len(self.figures) :]
        parts = group.gather((dict(zip(self.figures, values)), rest), "losses")
        sums = sum_by_name(local_sums for local_sums, _ in parts)
        means = {}
        for name, figure in sums:
            if figure != "loss":
                continue
            hits, ratios = sums.get((name, "hits")), {}
            for objective, ratio in sums:
                if objective == name and ratio.endswith(" 1") and (divisor := sums[name, ratio]):
                    ratios[ratio[:-2]] = sums[name, f"{ratio[:-2]} 0"] / divisor
            means[name] = Mean(
                loss=sums[name, "loss"] / (self.census.counts[name] or 1.0),
                accuracy=None if hits is None else hits / (self.census.labels[name] or 1),
                weight=self.weights.get(name, 1.0),
                ratios=ratios,
            )
        return means, parts[0][1]


Key = TypeVar("Key")
Number = TypeVar("Number", int, float)


def sum_by_name(parts: Iterable[Mapping[Key, Number]]) -> dict[Key, Number]:
    """Sum up values by name; names keep the order in which they first appear."""
    sums: dict[Key, Number] = {}
    for part in parts:
        for name, value in part.items():
            sums[name] = sums[name] + value if name in sums else value
    return sums
