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
        return self.types

    @property
    def criterion(self) -> str:
        return "f1"

    def fit(self, records: Sequence[Record]) -> Self:
        types = {span.type for record in records for span in record.label or ()}
        return dataclasses.replace(self, types=self.types or tuple(sorted(types)))

    def names(self, record: Record) -> tuple[str, ...]:
        """Return the types of a text's entities, each as often as it occurs."""
        return tuple(span.type for span in record.label or ())

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        assert isinstance(prediction, EntityPrediction) and isinstance(record, TaggedText)
        return entities_outcome(prediction, record)

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        entities = json.dumps(self.reply(prediction)["entities"], ensure_ascii=False) if prediction else ""
        return {"prediction": entities}

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        return {"entities": [entity._asdict() for entity in prediction.value or ()]}
