"""The contrastive loss: of all second texts in a pass, which one belongs to the first? (SimCSE, Gao et al. 2021)"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
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
        scores = vectors[first] @ vectors[second].T / self.temperature  # (R, R)
        right = torch.arange(len(first), device=scores.device)
        hits = (scores.detach().argmax(dim=-1) == right).sum()
        total = functional.cross_entropy(scores, right, reduction="sum")
        return Loss(total=total, count=batch.targets[self.target].count, hits=hits)


def partners(batch: Batch, first: Tensor) -> Tensor:
    """Return the other sequence (R,) of the record of each sequence in `first` (R,)."""
    others = torch.ones(len(batch.lengths), dtype=torch.bool, device=first.device)
    others[first] = False
    second = others.nonzero().squeeze(1)
    ordered = second[batch.records[second].argsort()]
    ranks = torch.searchsorted(batch.records[ordered], batch.records[first])
    return ordered[ranks]
