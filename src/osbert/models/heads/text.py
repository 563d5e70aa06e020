"""The head of models fine-tuned for generation: scores of the next piece, from the state of the token before it."""

from __future__ import annotations

from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.modes import Writing
from osbert.models.contract import Backbone, Loss, States
from osbert.models.forms import Form
from osbert.models.heads.predictions import MaskedLanguageHead, classification_loss


class TextHead(MaskedLanguageHead):
    """States -> scores over the vocabulary, for the piece after each token; trained on labelled tokens only.

    It starts from the weights of the language-model head of pretraining. `prefix`: whether the tokens of a source
    attend to each other (prefix LM); imported left-to-right models have no such attention.
    """

    form: Form = "text"

    def __init__(self, backbone: Backbone, *, target: str, prefix: bool = False, writes: Writing | None = None) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, whose labels are pieces.

        The attribute `smoothing` is the label smoothing, 0 by default.
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
