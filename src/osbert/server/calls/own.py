"""A call that a kind of task declares by its Edge: one record in each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, create_model

from osbert.server.calls.contract import Call, Item, RequestFields, item_of, require_text, windows
from osbert.server.models import ServerModel
from osbert.server.schemas import Reply, Request, Texts
from osbert.tasks.edges import Edge, FieldType


class RankingItem(BaseModel, title="RankedText"):
    """A text of a ranking: its rank from 1, its index in the request's list from 0, its score and its probability."""

    __qualname__ = "RankedText"

    rank: int
    index: int
    score: float
    probability: float


TYPES: Mapping[FieldType, Any] = {
    "text": str,
    "texts": Texts,
    "flag": bool,
    "integer": int,
    "number": float,
    "numbers": list[float],
    "probabilities": dict[str, float],
    "ranking": list[RankingItem],
}
"""Python types of the field types that a kind can declare."""


class OwnCall(Call):
    """The call of an Edge."""

    def __init__(self, edge: Edge) -> None:
        """Create the schemas of request and answer from the fields that `edge` declares."""
        title = "".join(part.capitalize() for part in edge.call.split("-"))
        request = {field.name: (TYPES[field.type], Field(description=field.about or None)) for field in edge.request}
        answer = {field.name: (TYPES[field.type], Field(description=field.about or None)) for field in edge.answer}
        more = {"windows": (int | None, Field(default=None, description="If a long text was read in several windows."))}
        self.edge = edge
        self.what = f"answer /v1/{edge.call}"
        self.request = create_model(f"{title}Request", __base__=Request, __doc__=edge.about, **request)  # type: ignore[call-overload]
        self.request.reads = tuple(request)
        self.reply = create_model(  # type: ignore[call-overload]
            f"{title}Answer", __base__=Reply, __doc__=f"What /v1/{edge.call} answers.", **answer, **more
        )

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return one item, the record of the request's texts. Raises Refusal (422) if a text is empty."""
        texts: list[str] = []
        for field in self.edge.request:
            value = values[field.name]
            given = [value] if isinstance(value, str) else value
            for text in given:
                require_text(model, text, field.name)
            texts += given
        # With `empty` what is too long is not refused; that no text is empty is known by now.
        return [item_of(model, texts, self.edge.request[0].name, empty=self.edge.cuts)]

    def fields(
        self, model: ServerModel, values: RequestFields, items: Sequence[Item], results: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the fields that the kind declares, made by `Task.reply`."""
        (item,), (prediction,) = items, results
        return {**model.engine.fine_tuned.reply(prediction), **windows(model, item)}
