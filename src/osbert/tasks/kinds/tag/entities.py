"""The common part of tasks whose records are texts with entities: their types, scores by type, and results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from osbert.tasks import Prediction, Record, Task
from osbert.tasks.kinds.tag.passages import EntityPrediction, TaggedText, entities_outcome
from osbert.tasks.record import RecordOutcome


@dataclass(frozen=True, kw_only=True)
class EntityTask(Task):
    """Texts with entities, which an EntityPrediction finds. Subclasses say how a text is encoded and decoded."""

    types: tuple[str, ...] = ()
    """The types of entities, learnt from the training rows if not given."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the types of entities."""
        return self.types

    @property
    def criterion(self) -> str:
        """Return F1 over all entities."""
        return "f1"

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task with the types of entities, in sorted order."""
        types = {span.type for record in records for span in record.label or ()}
        return dataclasses.replace(self, types=self.types or tuple(sorted(types)))

    def names(self, record: Record) -> tuple[str, ...]:
        """Return the types of a text's entities, each as often as it occurs."""
        return tuple(span.type for span in record.label or ())

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the outcome with the true and the predicted entities marked in the text."""
        assert isinstance(prediction, EntityPrediction) and isinstance(record, TaggedText)
        return entities_outcome(prediction, record)

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        """Return the entities as JSON, as `reply` has them; an empty cell without a prediction."""
        entities = json.dumps(self.reply(prediction)["entities"], ensure_ascii=False) if prediction else ""
        return {"prediction": entities}

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        """Return the entities under the key "entities", each with start, end, type, text and probability."""
        return {"entities": [entity._asdict() for entity in prediction.value or ()]}
