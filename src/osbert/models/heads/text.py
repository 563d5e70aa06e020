"""The head of models that are fine-tuned to write: the scores of each next piece, from the token before it."""

from __future__ import annotations

from torch import Tensor

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, States
from osbert.models.forms import Form
from osbert.models.heads.predictions import MaskedLanguageHead


class TextHead(MaskedLanguageHead):
    """States -> scores over the vocabulary, of the piece after each token; trained on the labelled tokens alone.

    It is the language-model head of pretraining, whose weights it starts from. `prefix`: whether the tokens of a
    source see each other, which others' left-to-right models do not do.
    """

    form: Form = "text"

    def __init__(self, backbone: Backbone, *, target: str, prefix: bool = False) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, the labels of which are pieces."""
        super().__init__(backbone, target=target)
        self.prefix = prefix

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (N, V) at every token."""
        return self.every(states, batch)
