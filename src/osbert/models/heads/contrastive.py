"""The contrastive loss with in-batch negatives, and with hard ones (SimCSE, Gao et al. 2021)."""

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
from osbert.models.pooling import Pooling, pool_states


class ContrastiveHead(Head):
    """States of texts -> a vector each; the negatives of a text are the second texts of the other records in the pass.

    A record may have a hard negative as third text, which then is a negative of all records in the pass.
    The loss cannot be split into sums over records, so a step must be one pass (`Batch.whole`).
    """

    form = "vectors"
    pooling: Pooling

    def __init__(self, backbone: Backbone, *, target: str, pooling: Pooling, temperature: float) -> None:
        """Stand on `backbone`; the batch's targets `target` are 0 at the first sequence of a record, 1 at a negative.

        In training only, a dense layer and tanh follow the pooling: SimCSE's "w/ MLP (train)".
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
        return torch.stack(pool_states(states.hidden, batch, self.pooling, self.summaries(batch)))

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats of R records, each a choice among all second texts and negatives."""
        target = batch.targets[self.target]
        first, negatives = target.index[target.labels == 0], target.index[target.labels == 1]
        candidates = torch.cat([partners(batch, first, but=negatives), negatives])
        vectors = functional.normalize(torch.tanh(self.dense(self.outputs(states, batch))).float(), dim=-1)
        return in_batch(vectors[first], vectors[candidates], temperature=self.temperature, count=target.count)


class SameTextHead(Head):
    """Encodes each sequence twice with different dropout; the positive of a vector is the second one of its text.

    The pooled vectors are compared directly. A new dense layer, as in "w/ MLP (train)", would disturb vectors that are
    already good.
    """

    form = "vectors"
    pooling: Pooling

    def __init__(self, backbone: Backbone, *, target: str, pooling: Pooling, temperature: float) -> None:
        """Stand on `backbone`; every sequence of a batch has a target `target`."""
        super().__init__()
        self.target = target
        self.pooling = pooling
        self.temperature = temperature
        self.summaries = backbone.summaries

    def before(self, batch: Batch) -> tuple[Batch, Mapping[str, Loss]]:
        """Return the batch with a copy of its B sequences appended."""
        return (twice(batch) if self.target in batch.targets else batch), {}

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vectors (M, D) of the first encodings."""
        return self._vectors(states, batch)[batch.targets[self.target].index]

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats of the first encodings."""
        target, vectors = batch.targets[self.target], functional.normalize(self._vectors(states, batch).float(), dim=-1)
        # The batch was doubled: the copy of sequence i is sequence i + B.
        first, second = vectors[target.index], vectors[target.index + len(batch.lengths) // 2]
        return in_batch(first, second, temperature=self.temperature, count=target.count)

    def _vectors(self, states: States, batch: Batch) -> Tensor:
        return torch.stack(pool_states(states.hidden, batch, self.pooling, self.summaries(batch)))


def in_batch(first: Tensor, second: Tensor, *, temperature: float, count: float) -> Loss:
    """Return the summed cross-entropy in nats of unit vectors `first` (R, D), each a choice among `second` (R + H, D).

    The first R of `second` are the positives, the others H hard negatives.
    """
    # Cosines over the temperature (SimCSE, equation 5); the diagonal holds the positives.
    scores = first @ second.T / temperature  # (R, R + H)
    right = torch.arange(len(first), device=scores.device)
    hits = (scores.detach().argmax(dim=-1) == right).sum()
    return Loss(total=functional.cross_entropy(scores, right, reduction="sum"), count=count, hits=hits)


def twice(batch: Batch) -> Batch:
    """Return a batch with its B sequences repeated after the last one; targets are those of the first copy."""
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


def partners(batch: Batch, first: Tensor, *, but: Tensor | None = None) -> Tensor:
    """Return the other sequence (R,) of the record of each sequence in `first` (R,), none of those in `but` (H,)."""
    # Without these a record has two sequences: those that are not first are the partners.
    others = torch.ones(len(batch.lengths), dtype=torch.bool, device=first.device)
    others[first] = False
    if but is not None:
        others[but] = False
    second = others.nonzero().squeeze(1)
    # Sorted by record, so that searchsorted finds the partner of each record.
    ordered = second[batch.records[second].argsort()]
    ranks = torch.searchsorted(batch.records[ordered], batch.records[first])
    return ordered[ranks]
