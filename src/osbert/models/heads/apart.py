"""The head of pairs whose texts are encoded separately: a layer on features of their two vectors (bi-encoder)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, States
from osbert.models.forms import Values
from osbert.models.heads.contrastive import partners
from osbert.models.heads.predictions import SequenceHead, classification_loss, regression_loss
from osbert.models.pooling import pair_blocks


class ApartHead(SequenceHead):
    """Pooled states of two texts -> K scores a pair, by a linear layer on u, v, |u - v|, uv and their cosine.

    After Sentence-BERT (Reimers and Gurevych 2019, section 3). The outputs are the vectors, since in
    inference a batch need not hold both texts of a pair; decoding scores them with the layer, from `decoding_values`.
    The first sequence of a record carries its label.
    """

    def __init__(
        self, backbone: Backbone, *, target: str, labels: int, dropout: float = 0.0, values: Values = "classes"
    ) -> None:
        """Stand on `backbone` with `labels` = K scores, of classes or of numbers."""
        super().__init__(backbone, target=target, labels=labels, dropout=dropout, form="vectors")
        self.values = values
        self.loss = regression_loss if values == "numbers" else classification_loss

    @staticmethod
    def inputs(width: int) -> int:
        """Return the size of all features of a pair."""
        return 4 * width + 1

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vector (B, D) of every text, of length 1."""
        return functional.normalize(states.pooled.float(), dim=-1)

    def blocks(self, states: States, batch: Batch) -> list[Tensor]:
        """Return the features of M labelled pairs: u, v, |u - v|, uv (M, D) each, and their cosine (M, 1)."""
        # Only the first sequence of a record has a target: its partner is found by the record.
        vectors, first = self.outputs(states, batch), batch.targets[self.target].index
        features: list[Tensor] = pair_blocks(vectors[first], vectors[partners(batch, first)])
        return features

    def score_targets(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (M, K) of the labelled pairs."""
        return self.linear(self.dropout(torch.cat(self.blocks(states, batch), dim=1)))

    def decoding_values(self) -> dict[str, list[Any]]:
        """Return the layer, K rows of weights and K biases."""
        return {"weight": self.linear.weight.tolist(), "bias": self.linear.bias.tolist()}
