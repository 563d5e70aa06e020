"""The head of a bidirectional language model: each direction's states -> scores of the next word on its side (ELMo)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.cross_entropy import linear_cross_entropy
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import linear


class DirectionsHead(Head):
    """Half of a token's state (M, D / 2) -> scores over the vocabulary, by one table for both directions.

    Labels come in pairs (both_ways.py): the first of a pair is scored by the first half of the state at its
    index, the second by the second half. Peters et al. 2018, section 3.1: both directions share the softmax layer.
    """

    bias: Tensor

    def __init__(self, backbone: Backbone, *, target: str = "both_ways") -> None:
        """Stand on `backbone`, whose states have separate directions; learn from the batch's targets `target`."""
        super().__init__()
        sizes = backbone.architecture
        self.target = target
        self.table = nn.Embedding(sizes.vocabulary, sizes.width // 2)
        self.bias = nn.Parameter(torch.zeros(sizes.vocabulary))
        self.dropout = Dropout(sizes.dropout)
        nn.init.normal_(self.table.weight, 0, 1 / math.sqrt(self.table.embedding_dim))

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (M, V) of the labels, in their order."""
        return linear(self._halves(states, batch), self.table.weight, self.bias)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats of both directions."""
        target = batch.targets[self.target]
        total, hits = linear_cross_entropy(self._halves(states, batch), self.table.weight, self.bias, target.labels)
        return Loss(total=total, count=target.count, hits=hits)

    def flops(self, labels: int) -> int:
        """Return the FLOPs for this number of labels: the product with the table."""
        return 2 * labels * self.table.weight.numel()

    def _halves(self, states: States, batch: Batch) -> Tensor:
        """Return the half of a state (M, D / 2) from which each label is predicted."""
        from_left, from_right = (
            states.hidden[batch.targets[self.target].index].view(-1, 2, states.hidden.shape[1]).unbind(1)
        )
        side = from_left.shape[1] // 2
        # Interleaved again, in the order of the labels.
        return self.dropout(torch.stack([from_left[:, :side], from_right[:, side:]], 1).flatten(0, 1))
