"""The head of models that are fine-tuned to write: the scores of each next piece, from the token before it."""

from __future__ import annotations

from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.modes import Writing
from osbert.models.contract import Backbone, Loss, States
from osbert.models.forms import Form
from osbert.models.heads.predictions import MaskedLanguageHead, classification_loss


class TextHead(MaskedLanguageHead):
    """States -> scores over the vocabulary, of the piece after each token; trained on the labelled tokens alone.

    It is the language-model head of pretraining, whose weights it starts from. `prefix`: whether the tokens of a
    source see each other, which others' left-to-right models do not do.
    """

    form: Form = "text"

    def __init__(self, backbone: Backbone, *, target: str, prefix: bool = False, writes: Writing | None = None) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, the labels of which are pieces.

        The attribute `smoothing` is the part of the true probability that goes to all pieces alike, 0 until it is set.
        """
        super().__init__(backbone, target=target, writes=writes)
        self.prefix = prefix
        self.smoothing = 0.0

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (N, V) at every token."""
        return self.every(states, batch)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the (weighted) summed cross-entropy in nats over the labelled positions."""
        if not self.smoothing:
            return super().forward(states, batch)
        target = batch.targets[self.target]
        return classification_loss(self.scores(states.hidden[target.index]), target, smoothing=self.smoothing)
