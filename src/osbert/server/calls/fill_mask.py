"""POST /v1/fill-mask: the likeliest pieces for each [MASK]."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from pydantic import BaseModel, Field

from osbert.server.calls.contract import Call, Item, Items, RequestFields, Results, require_fit
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Refusal, Reply, Request, Texts

MOST = 50_000
"""Most pieces in an answer, about 60 bytes each."""


class FillRequest(Request, title="FillMask"):
    """Texts with [MASK] in them."""

    texts: Texts
    top: int = Field(default=5, ge=1, le=100, description="Number of pieces to return for each mask.")


class Fill(BaseModel):
    """A piece that may stand in a mask's place."""

    piece: str
    probability: float


class FillAnswer(Reply, title="Fills"):
    """What /v1/fill-mask answers: of each text, of each mask in it, the likeliest pieces."""

    __qualname__ = "Fills"

    fills: list[list[list[Fill]]]


class FillCall(Call):
    """Predicts the pieces at each [MASK] of each text."""

    what = "fill masks (/v1/fill-mask)"
    request = FillRequest
    reply = FillAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text.

        Raises Refusal: 422 if a text has no mask or is too long, 413 if the answer would have more than MOST pieces.
        """
        from osbert.inference.pieces import MASK, pack_with_masks

        masks = sum(text.count(MASK) for text in values["texts"])
        top = values.get("top", 1)  # an explanation asks for none
        if masks * top > MOST:
            what = f"An answer has at most {MOST:,} pieces, not {top} for each of {masks:,} masks."
            raise Refusal(413, what, field="top")
        items = []
        for index, text in enumerate(values["texts"]):
            if MASK not in text:
                raise Refusal(422, f"There is no {MASK} in the text.", field=f"texts[{index}]")
            example = pack_with_masks(text, model.engine.packer)
            items.append(require_fit(Item(example, (example,)), f"texts[{index}]", length=model.length))
        return items

    def option(self, values: RequestFields) -> Hashable:
        return values["top"]

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        from osbert.inference.pieces import fill

        assert model.masks is not None
        engine = model.engine
        return fill(engine.learner, model.masks, [item.value for item in items], engine.tokenizer, top=option)

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        return {"fills": [[[fill._asdict() for fill in mask] for mask in masks] for masks in results]}
