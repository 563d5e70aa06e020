"""Scores a model on records: predictions in the records' order, and the task's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, outputs
from osbert.models.heads import Learner
from osbert.tasks import Prediction, Record, Task


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a model said of some records, and how good that was."""

    metrics: dict[str, float]
    predictions: list[Prediction]


def predict(
    learner: Learner, task: Task, records: Sequence[Record], packer: Packer, *, tokens: int = TOKENS
) -> list[Prediction]:
    """Return a prediction for each record; labels are not needed and not looked at."""
    sequences = [task.encode(replace(record, label=None), packer) for record in records]
    examples = [example for group in sequences for example in group]
    rows = iter(outputs(learner, task.name, examples, tokens=tokens, per_token=task.per_token))
    predictions = []
    for record, group in zip(records, sequences):
        prediction = task.decode([next(rows) for _ in group], record)
        truncated = sum(example.truncated for example in group)
        predictions.append(replace(prediction, truncated=truncated))
    return predictions


def score(learner: Learner, task: Task, records: Sequence[Record], packer: Packer, *, tokens: int = TOKENS) -> Score:
    """Return predictions and metrics; raises UserError when a record has no label to compare with."""
    unlabelled = next((record for record in records if record.label is None), None)
    if unlabelled is not None:
        raise UserError(f"{unlabelled.place}: there is no label to compare the prediction with.")
    predictions = predict(learner, task, records, packer, tokens=tokens)
    return Score(metrics=task.metrics(predictions, records), predictions=predictions)
