"""POST /v1/tag: finds the entities in texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from osbert.server.calls.contract import Call, Item, RequestFields, item_of
from osbert.server.models import ServerModel
from osbert.server.schemas import Reply, Request, Texts


class TagRequest(Request, title="Tag"):
    """Texts in which entities are looked for."""

    texts: Texts


class Entity(BaseModel):
    """An entity: text[start:end], in characters."""

    type: str
    start: int
    end: int
    text: str
    probability: float | None = None


class TagAnswer(Reply, title="Entities"):
    """What /v1/tag answers: the entities of each text."""

    __qualname__ = "Entities"

    entities: list[list[Entity]]
    windows: list[int] | None = None


class TagCall(Call):
    """Tags the entities of each text."""

    what = "tag (/v1/tag)"
    request = TagRequest
    reply = TagAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text. Long texts are read in windows, so none is too long."""
        return [item_of(model, (text,), f"texts[{index}]", empty=True) for index, text in enumerate(values["texts"])]

    def fields(
        self, model: ServerModel, values: RequestFields, items: Sequence[Item], results: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the entities of each text, and the numbers of windows if a text had several."""
        reply = model.engine.fine_tuned.reply
        counts = [len(item.examples) for item in items]
        several = {"windows": counts} if max(counts) > 1 else {}
        return {"entities": [reply(prediction)["entities"] for prediction in results], **several}
