"""The model under analysis, with its tokenizer, heads and seed."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.analysis.likelihood import LanguageModel
from osbert.data.example import Booleans
from osbert.data.pack import Packer
from osbert.models.contract import Backbone, Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Task


@dataclass(frozen=True, kw_only=True)
class AnalysedModel:
    """A model with everything that an experiment may need.

    `packer`: makes sequences of the model's length. `signs` (V,): which pieces are punctuation. `masks`: the head that
    predicts masked pieces, None if the model has none. `language`: scores texts with that head or with the one that
    predicts the next piece. `task`: the task that it was fine-tuned on, None for an encoder. `seed`: that of all
    sampling and of the random encoder.
    """

    learner: Learner
    packer: Packer
    signs: Booleans
    seed: int
    masks: MaskedLanguageHead | None = None
    language: LanguageModel | None = None
    task: Task | None = None

    @property
    def backbone(self) -> Backbone:
        """Return the encoder without its heads."""
        return self.learner.backbone

    @property
    def mute(self) -> str:
        """Return why the model cannot predict pieces; "" if it can."""
        if self.language:
            return ""
        return "the model has no language head for masked or next pieces, as fine-tuned encoders, ELMo and CoVe"
