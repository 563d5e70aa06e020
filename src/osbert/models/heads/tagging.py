"""The tagging head: token states -> scores of labels, for each token independently or as a chain (CRF)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear
from osbert.models.forms import Form
from osbert.models.heads.chain import Chain
from osbert.models.heads.crf import ChainField
from osbert.models.heads.features import WIDTH, FeatureLSTM, FrozenEncoder
from osbert.models.heads.layer_choice import Features, feature_layers
from osbert.models.heads.predictions import classification_loss
from osbert.models.heads.transform import transform
from osbert.models.initialisation import initialise_scores


class TagHead(Head):
    """Token states -> K scores a token by one linear layer (section 5.3); a CRF scores the labels of a chain jointly.

    The targets of a CRF are label numbers, with K added at the start of a chain. Its loss, too, is a mean over labels.
    """

    form: Form = "tokens"
    sparse = True
    beside = ("crf.",)

    def __init__(
        self,
        backbone: Backbone,
        *,
        target: str,
        labels: int,
        chain: Chain | None = None,
        features: Features = "none",
    ) -> None:
        """Stand on `backbone` with `labels` = K outputs; learn from the batch's targets named `target`.

        `chain`: fixed transition scores that a CRF adds to its learned ones; None for no CRF. `features`: freeze the
        backbone, and train a bidirectional LSTM on these of its layers instead.
        """
        super().__init__()
        sizes = backbone.architecture
        self.target = target
        self.labels = labels
        self.features: FeatureLSTM | None = None
        if features != "none":
            self.form, self.sparse = "", False
            self.frozen = FrozenEncoder(backbone, feature_layers(features, sizes.layers))
            self.features = FeatureLSTM(sizes, features)
        self.transform = transform(sizes) if features == "none" else nn.Identity()
        self.dropout = Dropout(sizes.dropout if features == "none" else 0.0)  # the LSTM has its own
        self.linear = Linear(sizes.width if features == "none" else WIDTH, labels)
        initialise_scores(self.linear, sizes.deviation)
        self.crf = None if chain is None else ChainField(chain)

    @property
    def per_token(self) -> bool:
        """Return True, also for a head on features, which has no form."""
        return True

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (N, K) of every token."""
        return self.linear(self.dropout(self.transform(self._hidden(states, batch))))

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats over the labelled tokens, or a CRF's over its chains."""
        target = batch.targets[self.target]
        hidden = self.transform(self._hidden(states, batch)[target.index])  # (M, D)
        scores = self.linear(self.dropout(hidden))  # (M, K)
        if self.crf is None:
            return classification_loss(scores, target)
        # Labels of K and above start a chain; the remainder by K is the label.
        begins = torch.nonzero(target.labels >= self.labels).squeeze(1)
        lengths = torch.diff(begins, append=begins.new_tensor([len(target.labels)])).tolist()
        likelihood = self.crf.log_likelihood(scores.float(), target.labels % self.labels, lengths)
        return Loss(total=-likelihood.sum(), count=target.count)

    def decoding_values(self) -> dict[str, list[Any]]:
        """Return the transition scores of a CRF, by the field names of a Chain; {} without one."""
        return {} if self.crf is None else {name: part.tolist() for name, part in vars(self.crf.chain()).items()}

    def _hidden(self, states: States, batch: Batch) -> Tensor:
        return states.hidden if self.features is None else self.features(states.hidden, batch)
