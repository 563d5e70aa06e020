"""A toy learner and loader that speak the trainer's contract, without model, objective or text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from osbert.data.batch import Batch, BatchTarget
from osbert.data.step import Cursor, Step
from osbert.training.optimizer import OptimizerSettings
from osbert.training.settings import TrainingSettings
from osbert.training.trainer import Trainer

WIDTH, KINDS = 8, 5


@dataclass
class Outcome:
    total: Tensor
    count: float
    hits: Tensor | None
    weight: float = 1.0
    ratios: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


class ToyLearner(nn.Module):
    """Two objectives over toy ids: "word" on tokens, weighted "side" on sequences; dropout in between."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.table = nn.Embedding(32, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.word = nn.Linear(WIDTH, 32)
        self.side = nn.Linear(WIDTH, KINDS)
        for weight in self.parameters():
            weight.data = torch.randn(weight.shape, generator=generator) * 0.1
        self.register_buffer("seen", torch.zeros(()))
        self.tied = self.word  # the same module under two names
        self.poison: set[int] = set()

    def forward(self, batch: Batch) -> dict[str, Outcome]:
        if self.training:
            self.seen += 1
        hidden = self.dropout(self.norm(self.table(batch.ids)))
        losses = {}
        for name, head in (("word", self.tied), ("side", self.side)):
            if name not in batch.targets:
                continue
            target = batch.targets[name]
            where = target.index if target.per_token else batch.starts[target.index]
            scores = head(hidden[where])
            each = functional.cross_entropy(scores, target.labels, reduction="none")
            total = each.sum() if target.weights is None else (each * target.weights).sum()
            if int(batch.records[0]) in self.poison:
                total = total * float("nan")
            losses[name] = Outcome(total, target.count, (scores.argmax(-1) == target.labels).sum())
        return losses


def toy_batch(rng: np.random.Generator, sequences: int, record: int) -> Batch:
    lengths = rng.integers(2, 7, size=sequences)
    tokens = int(lengths.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    index = np.sort(rng.choice(tokens, size=max(1, tokens // 3), replace=False))
    weights = torch.from_numpy(rng.random(sequences).astype(np.float32)) + 0.1
    ids = torch.from_numpy(rng.integers(32, size=tokens))
    word = BatchTarget(labels=ids[index] % 4, index=torch.from_numpy(index), per_token=True, count=float(len(index)))
    side = BatchTarget(labels=torch.from_numpy(rng.integers(KINDS, size=sequences)), index=torch.arange(sequences),
                  per_token=False, weights=weights, count=float(weights.sum()))  # fmt: skip
    return Batch(
        ids=ids,
        positions=torch.arange(tokens),
        segments=torch.zeros(tokens, dtype=torch.int64),
        order=None,
        lengths=tuple(lengths.tolist()),
        starts=torch.from_numpy(starts),
        records=torch.full((sequences,), record),
        targets={"word": word, "side": side},
    )


class ToyLoader:
    """Step k is a pure function of k: `parts` micro-batches of uneven sizes; the records of step k are all k."""

    def __init__(self, parts: int = 3) -> None:
        self.parts = parts

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        number = cursor.index
        while True:
            rng = np.random.default_rng(number)
            batches = [toy_batch(rng, 2 + part, number) for part in range(self.parts)]
            number += 1
            yield Step(batches=batches, cursor=replace(cursor, index=number))


def merged(batches: list[Batch]) -> Batch:
    """One batch of several: what accumulation must equal."""
    tokens = np.cumsum([0, *(batch.tokens for batch in batches)])
    sequences = np.cumsum([0, *(len(batch.lengths) for batch in batches)])
    targets = {}
    for name, first in batches[0].targets.items():
        shift = tokens if first.per_token else sequences
        parts = [batch.targets[name] for batch in batches]
        targets[name] = BatchTarget(
            labels=torch.cat([part.labels for part in parts]),
            index=torch.cat([part.index + int(shift[place]) for place, part in enumerate(parts)]),
            per_token=first.per_token,
            weights=None if first.weights is None else torch.cat([part.weights for part in parts]),
            count=sum(part.count for part in parts),
        )
    return Batch(
        ids=torch.cat([batch.ids for batch in batches]),
        positions=torch.cat([batch.positions for batch in batches]),
        segments=torch.cat([batch.segments for batch in batches]),
        order=None,
        lengths=sum((batch.lengths for batch in batches), ()),
        starts=torch.cat([batch.starts + int(tokens[place]) for place, batch in enumerate(batches)]),
        records=torch.cat([batch.records for batch in batches]),
        targets=targets,
    )


class MergedLoader(ToyLoader):
    """The same steps, each as one large batch."""

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        for step in super().steps(cursor):
            yield Step(batches=[merged(list(step.batches))], cursor=step.cursor)


class FailingLoader(ToyLoader):
    """The same steps, and an error in place of the fourth."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        yield from itertools.islice(super().steps(cursor), 3)
        raise self.error


@pytest.fixture
def toys() -> SimpleNamespace:
    def trainer(folder, *, loader=None, learner=None, dropout=0.1, optimizer=None, **training) -> Trainer:
        settings = {"steps": 10, "checkpoint_every": 4, "device": "cpu", "precision": "fp32", **training}
        return Trainer(
            learner or ToyLearner(dropout),
            loader or ToyLoader(),
            OptimizerSettings(**{"learning_rate": 1e-2, "warmup": 0.2, **(optimizer or {})}),
            TrainingSettings(**settings),
            folder,
        )

    def same(one: nn.Module, other: nn.Module) -> bool:
        pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
        return all(torch.equal(left, right) for left, right in pairs)

    return SimpleNamespace(
        trainer=trainer,
        same=same,
        Learner=ToyLearner,
        Loader=ToyLoader,
        FailingLoader=FailingLoader,
        MergedLoader=MergedLoader,
        batch=toy_batch,
    )
