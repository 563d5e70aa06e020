"""A call of another API: it translates the request for a call of osbert, which does the work, and then its results."""

from __future__ import annotations

import base64
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.server.calls.contract import Call, Item, Items, RequestFields, Results
from osbert.server.calls.embed import EmbedCall
from osbert.server.calls.models import EMBED, ServerModel
from osbert.server.calls.schemas import Refusal


class ClientCall(Call):
    """A call of another API. `call`: the call of osbert behind it, which gives the items and the results.

    `field_names`: what this API calls the fields of that call, for refusals.
    """

    call: Call
    field_names: ClassVar[Mapping[str, str]] = {}

    def translate(self, values: RequestFields) -> RequestFields:
        """Return the fields of a request as those of `call`."""
        raise NotImplementedError

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return the items that `call` makes. Raises its Refusal, with the field as this API names it."""
        try:
            return self.call.items(model, self.translate(values))
        except Refusal as refusal:
            name, bracket, index = refusal.field.partition("[")
            name = self.field_names.get(name, name)
            field = f"{name}{bracket}{index}" if isinstance(values.get(name), list) else name
            raise Refusal(refusal.status, refusal.message, field=field) from None

    def option(self, values: RequestFields) -> Hashable:
        return self.call.option(self.translate(values))

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        return self.call.read(model, items, option)


class ClientVectors(ClientCall):
    """A call of another API for vectors."""

    needs = EMBED
    call: EmbedCall = EmbedCall()

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text. Raises Refusal (422) for dimensions that the model was not trained for."""
        whole, dimensions = {**values, "dimensions": None}, values["dimensions"]
        items = super().items(model, whole)
        width = model.embedder(self.call.option(self.translate(whole))).shape[-1]
        sizes = model.engine.source.matryoshka
        if dimensions is not None and dimensions != width and (dimensions > width or dimensions not in sizes):
            cuts = f", or the first {', '.join(map(str, sizes))} of them" if isinstance(sizes, list) else ""
            why = "" if sizes else "; its config.json does not say that they may be cut (Matryoshka)"
            message = f"The vectors of {model.name} have {width} numbers{cuts}, not {dimensions}{why}."
            raise Refusal(422, message, field="dimensions")
        return items


def vector_request(
    texts: str | Sequence[str],
    *,
    role: str | None = None,
    normalise: bool | None = None,
    long: str = "error",
    dimensions: int | None = None,
) -> RequestFields:
    """Return the fields of a request to /v1/embed, for a text or several; None means the model's own setting."""
    fields = {"role": role, "pooling": None, "normalise": normalise, "long": long, "dimensions": dimensions}
    return {"texts": [texts] if isinstance(texts, str) else texts, **fields}


def as_array(results: Results) -> NDArray[np.float32]:
    """Return vectors (n, D) as one array of little-endian float32."""
    return np.stack(results).astype("<f4", copy=False)


def as_base64(vectors: NDArray[np.float32]) -> list[str]:
    """Return the bytes of each vector of an array (n, D) in base64."""
    return [base64.b64encode(row.tobytes()).decode() for row in vectors]


def count_tokens(items: Items) -> int:
    """Return the number of tokens that the model reads for items."""
    return sum(item.tokens for item in items)
