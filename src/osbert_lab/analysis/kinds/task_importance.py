"""The heads that matter for the task of a fine-tuned model: importance by gradient, and loss without heads."""

from __future__ import annotations

from collections.abc import Sequence

from osbert.data.batch import Batch
from osbert.models.contract import Loss
from osbert.tasks import Record
from osbert_lab.analysis.importance import HeadImportance, Item, LossOf, spread
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.sample import ItemSample


class TaskImportance(HeadImportance):
    """The importance of heads for the loss of the task, on labelled rows."""

    reads = "rows"
    position = 6
    loss_name = "the task"
    unit = "rows"

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why there is no loss of single rows or no gradient of it; "" if there is."""
        if reason := super().obstacle(model):
            return reason
        if model.task is None:
            return "the model is not fine-tuned"
        return "the loss compares rows with each other" if model.task.batching == "step" else ""

    def items(self, model: AnalysedModel, sample: object) -> list[Item]:
        """Return the sequences of each labelled row."""
        assert isinstance(sample, ItemSample)
        return self.sequences(model, sample.items)

    @staticmethod
    def sequences(model: AnalysedModel, records: Sequence[Record]) -> list[Item]:
        """Return the sequences of labelled records, of ITEMS at most."""
        assert model.task is not None
        return [model.task.encode(record, model.packer) for record in spread(records)]

    def loss(self, model: AnalysedModel) -> LossOf:
        """Return the loss of the task."""
        assert model.task is not None
        head = model.learner.heads[model.task.name]

        def loss(batch: Batch) -> Loss:
            return head(model.learner.states(batch), batch)

        return loss
