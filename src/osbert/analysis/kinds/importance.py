"""Which heads matter to predicting masked pieces: importance by gradient, and the loss without heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from osbert.analysis.importance import HeadImportance, Item, LossOf, spread
from osbert.analysis.model import AnalysedModel
from osbert.analysis.sample import TextSample
from osbert.data.batch import Batch
from osbert.data.example import Example, Target
from osbert.models.contract import Loss

RATE = 0.15
"""The part of a text's pieces that is masked, as in pretraining. Each shows [MASK]: the loss then has one meaning."""


class MaskedImportance(HeadImportance):
    """The heads by the loss of masked pieces."""

    place = 5
    loss_name = "masked pieces"
    unit = "texts"

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why there is no loss of masked pieces, or no gradient of it."""
        return super().obstacle(model) or ("" if model.masks is not None else "the model predicts no masked pieces")

    def items(self, model: AnalysedModel, sample: object) -> list[Item]:
        """Return texts with masks; one without any piece to mask is left out."""
        assert isinstance(sample, TextSample) and model.masks is not None
        rng = np.random.default_rng([model.seed, 3])
        mask = model.packer.tokenizer.mask
        texts = [one for one in spread(sample.examples) if not one.special.all()]
        return [[_masked(one, mask, model.masks.target, rng)] for one in texts]

    def loss(self, model: AnalysedModel) -> LossOf:
        """Return the cross-entropy of the masked pieces."""
        head = model.masks
        assert head is not None

        def loss(batch: Batch) -> Loss:
            return head(model.backbone(batch), batch)

        return loss


def _masked(example: Example, mask: int, target: str, rng: np.random.Generator) -> Example:
    pieces = np.flatnonzero(~example.special)
    index = np.sort(rng.choice(pieces, max(1, round(RATE * len(pieces))), replace=False))
    ids = example.ids.copy()
    ids[index] = mask
    return replace(example, ids=ids, targets={target: Target(labels=example.ids[index].astype(np.int64), index=index)})
