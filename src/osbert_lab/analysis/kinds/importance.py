"""The heads that matter for the prediction of masked pieces: importance by gradient, and loss without heads."""

from __future__ import annotations

import numpy as np

from osbert.data.batch import Batch
from osbert.models.contract import Loss
from osbert_lab.analysis.importance import LEAST, HeadImportance, Item, LossOf, spread
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.predicted_part import with_predicted_part
from osbert_lab.analysis.sample import TextSample

RATE = 0.15
"""Fraction of pieces that are masked, as in pretraining. All show [MASK], unlike there, so that the loss has one
meaning."""


class MaskedImportance(HeadImportance):
    """The importance of heads for the loss of masked pieces."""

    position = 5
    least = f"{2 * LEAST} texts"
    loss_name = "masked pieces"
    unit = "texts"

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why there is no loss of masked pieces or no gradient of it; "" if there is."""
        return super().obstacle(model) or ("" if model.masks is not None else "the model predicts no masked pieces")

    def items(self, model: AnalysedModel, sample: object) -> list[Item]:
        """Return masked texts; texts without any piece are left out."""
        assert isinstance(sample, TextSample) and model.masks is not None
        rng = np.random.default_rng([model.seed, 3])
        mask = model.packer.tokenizer.mask
        masked = (
            with_predicted_part(example, model.masks.target, RATE, rng, mask=mask)
            for example in spread(sample.examples)
        )
        return [[example] for example in masked if example is not None]

    def loss(self, model: AnalysedModel) -> LossOf:
        """Return the cross-entropy of the masked pieces."""
        head = model.masks
        assert head is not None

        def loss(batch: Batch) -> Loss:
            return head(model.backbone(batch), batch)

        return loss
