"""A model that is analysed, with all that reads or runs it."""

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
    """A model with all that an experiment may need.

    `packer`: for sequences as long as the model reads. `signs` (V,): which pieces are punctuation. `masks`: what
    predicts masked pieces, None where the model has none; `language`: what scores texts with that head, or with the one
    that predicts the next piece. `task`: what it was fine-tuned on, None for an encoder.
    `seed`: of all sampling, and of the random encoder.
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
        """Return the encoder."""
        return self.learner.backbone

    @property
    def mute(self) -> str:
        """Return why it predicts no pieces, "" where it does."""
        return "" if self.language else "the model has no language head, as fine-tuned and sentence encoders have none"
