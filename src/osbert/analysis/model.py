"""A model that is analysed, with all that reads or runs it."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.data.example import Booleans
from osbert.data.pack import Packer
from osbert.models.contract import Backbone, Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Task


@dataclass(frozen=True, kw_only=True)
class AnalysedModel:
    """A model with all that an experiment may need.

    `packer`: for sequences as long as the model reads. `signs` (V,): which pieces are punctuation. `masks`: what
    predicts masked pieces, None where the model has none. `task`: what it was fine-tuned on, None for an encoder.
    `seed`: of all sampling, and of the random encoder.
    """

    learner: Learner
    packer: Packer
    signs: Booleans
    seed: int
    masks: MaskedLanguageHead | None = None
    task: Task | None = None

    @property
    def backbone(self) -> Backbone:
        """Return the encoder."""
        return self.learner.backbone
