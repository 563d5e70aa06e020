"""The contrastive loss: of all second texts in a pass, which one belongs to the first? (SimCSE, Gao et al. 2021)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import TOKEN_COLUMNS, Batch
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.linear import Linear
from osbert.models.initialisation import initialise
from osbert.models.pooling import Pooling, pooled


class ContrastiveHead(Head):
    """States of texts -> a vector each; a text's negatives are the second texts of the other records in the pass.

    So the loss is no sum over records that could be parted: a step must be one pass (`Batch.whole`).
    """

    form = "vectors"
    pooling: Pooling

    def __init__(self, backbone: Backbone, *, target: str, pooling: Pooling, temperature: float) -> None:
        """Stand on `backbone`; the batch's targets `target` stand on the first sequence of each record.

        A dense layer and tanh stand above the vectors in training alone, SimCSE's "w/ MLP (train)".
        """
        super().__init__()
        self.target = target
        self.pooling = pooling
        self.temperature = temperature
        self.summaries = backbone.summaries
        self.dense = Linear(backbone.architecture.width, backbone.architecture.width)
        initialise(self, backbone.architecture.deviation)

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vector (B, D) of every text."""
        return torch.stack(pooled(states.hidden, batch, self.pooling, self.summaries(batch)))

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats of R records: each finds its second text among R."""
        first = batch.targets[self.target].index
        second = partners(batch, first)
        vectors = functional.normalize(torch.tanh(self.dense(self.outputs(states, batch))).float(), dim=-1)
        return in_batch(
            vectors[first], vectors[second], temperature=self.temperature, count=batch.targets[self.target].count
        )


class SameTextHead(Head):
    """Reads each sequence twice, under other dropout; its own second reading is to be the nearest of the pass.

    The vectors themselves are compared: the dense layer of "w/ MLP (train)" would be new, and move vectors that are
    good already.
    """

    form = "vectors"
    pooling: Pooling

    def __init__(self, backbone: Backbone, *, target: str, pooling: Pooling, temperature: float) -> None:
        """Stand on `backbone`; the batch's targets `target` stand on every sequence."""
        super().__init__()
        self.target = target
        self.pooling = pooling
        self.temperature = temperature
        self.summaries = backbone.summaries

    def before(self, batch: Batch) -> tuple[Batch, Mapping[str, Loss]]:
        """Return the batch with each of its B sequences once more, behind them all."""
        return (twice(batch) if self.target in batch.targets else batch), {}

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vectors (M, D) of the first readings."""
        return self._vectors(states, batch)[batch.targets[self.target].index]

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats of the first readings."""
        target, vectors = batch.targets[self.target], functional.normalize(self._vectors(states, batch).float(), dim=-1)
        first, second = vectors[target.index], vectors[target.index + len(batch.lengths) // 2]
        return in_batch(first, second, temperature=self.temperature, count=target.count)

    def _vectors(self, states: States, batch: Batch) -> Tensor:
        return torch.stack(pooled(states.hidden, batch, self.pooling, self.summaries(batch)))


def in_batch(first: Tensor, second: Tensor, *, temperature: float, count: float) -> Loss:
    """Return the summed cross-entropy in nats of R vectors (R, D) of length 1: each finds its own among R others."""
    scores = first @ second.T / temperature  # (R, R)
    right = torch.arange(len(first), device=scores.device)
    hits = (scores.detach().argmax(dim=-1) == right).sum()
    return Loss(total=functional.cross_entropy(scores, right, reduction="sum"), count=count, hits=hits)


def twice(batch: Batch) -> Batch:
    """Return a batch with its B sequences a second time behind the first; the targets stay those of the first."""
    columns: dict[str, Any] = {
        name: torch.cat([column, column]) for name in TOKEN_COLUMNS if (column := getattr(batch, name)) is not None
    }
    return replace(
        batch,
        **columns,
        lengths=batch.lengths * 2,
        starts=torch.cat([batch.starts, batch.starts + batch.tokens]),
        records=torch.cat([batch.records, batch.records]),
    )


def partners(batch: Batch, first: Tensor) -> Tensor:
    """Return the other sequence (R,) of the record of each sequence in `first` (R,)."""
    others = torch.ones(len(batch.lengths), dtype=torch.bool, device=first.device)
    others[first] = False
    second = others.nonzero().squeeze(1)
    ordered = second[batch.records[second].argsort()]
    ranks = torch.searchsorted(batch.records[ordered], batch.records[first])
    return ordered[ranks]
