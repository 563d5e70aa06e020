"""The head that tags: token states -> scores of labels, each token by itself or as a chain (CRF)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.chain import Chain
from osbert.models.crf import ChainField
from osbert.models.dropout import Dropout
from osbert.models.heads import Head, Loss
from osbert.models.predictions import classification_loss
from osbert.models.transformer import States, Transformer, initialise


class TagHead(Head):
    """Token states -> K scores a token by one linear layer (section 5.3); with a CRF the labels of a chain as one.

    A CRF's targets are labels, plus K where a chain begins. Its loss is a mean over labels as well.
    """

    kind = "tag"
    sparse = True

    def __init__(
        self, backbone: Transformer, *, target: str, labels: int, dropout: float, chain: Chain | None = None
    ) -> None:
        """Stand on `backbone` with `labels` = K outputs; learn from the batch's targets named `target`.

        `chain`: what is added to a CRF's steps beside what is learnt; None for no CRF.
        """
        super().__init__()
        self.target = target
        self.labels = labels
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(backbone.architecture.width, labels)
        initialise(self, backbone.architecture.deviation)
        self.crf = None if chain is None else ChainField(chain)

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (N, K) of every token."""
        return self.linear(self.dropout(states.hidden))

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats over the labelled tokens, or a CRF's over its chains."""
        target = batch.targets[self.target]
        scores = self.linear(self.dropout(states.hidden[target.index]))  # (M, K)
        if self.crf is None:
            return classification_loss(scores, target)
        begins = torch.nonzero(target.labels >= self.labels).squeeze(1)
        lengths = torch.diff(begins, append=begins.new_tensor([len(target.labels)])).tolist()
        likelihood = self.crf.log_likelihood(scores.float(), target.labels % self.labels, lengths)
        return Loss(total=-likelihood.sum(), count=target.count)
