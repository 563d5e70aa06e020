"""POST /v1/embed: vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from osbert.data.long_texts import Long
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.models.forms import Pooling
from osbert.server.calls.contract import (
    Call,
    Item,
    Items,
    RequestFields,
    Results,
    require_fit,
    require_pieces,
    require_text,
)
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Reply, Request, Texts


class EmbedRequest(Request, title="Embed"):
    """Texts, or pairs, and how their vectors are made; the fields that are left out are the model's own."""

    texts: Texts
    role: str | None = Field(
        default=None,
        max_length=200,
        description="What the texts are for: query, document, or the name of a prompt of the model, which is put "
        "before each text. When left out: the default prompt of a model that has one.",
    )
    pooling: Pooling | None = Field(
        default=None, description="The model's own if it was trained for sentence vectors, else mean, when left out."
    )
    normalise: bool | None = Field(
        default=None, description="Scale every vector to length 1; where the model was trained for that when left out."
    )
    dimensions: int | None = Field(
        default=None, ge=1, description="The first numbers of each vector; all when left out."
    )
    long: Long = Field(
        default="truncate",
        description="How a text that does not fit is read: its beginning; head+tail: a quarter of the tokens from its "
        "beginning, the rest from its end; window: all of it, as the mean of windows; error: not at all (422).",
    )


class EmbedAnswer(Reply, title="Vectors"):
    """What /v1/embed answers."""

    __qualname__ = "Vectors"

    vectors: list[list[float]]
    truncated: list[int] | None = Field(
        default=None, description="Of each text, the pieces that were not read, if a text did not fit."
    )
    windows: list[int] | None = Field(default=None, description="Of each text, if a text had several.")


class EmbedCall(Call):
    """Computes a vector for each text."""

    what = "embed (/v1/embed)"
    request = EmbedRequest
    reply = EmbedAnswer
    sparse: ClassVar[bool] = False

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text. Raises Refusal (422) if a text is empty, or with long="error" if one is cut."""
        embedder = model.embedder(self.option(values), sparse=self.sparse)
        sequences = [tuple(embedder.sequences((text,), 0)) for text in values["texts"]]
        items = [Item(examples, examples) for examples in sequences]
        for index, item in enumerate(items):
            if embedder.prompt:  # its pieces would be those of an empty text
                require_text(model, values["texts"][index], f"texts[{index}]")
            require_pieces(item, f"texts[{index}]")
            if values["long"] == "error":
                require_fit(item, f"texts[{index}]", length=embedder.settings.length)
        return items

    def option(self, values: RequestFields) -> EmbeddingOptions:
        return EmbeddingOptions(
            role=values.get("role"),
            pooling=values["pooling"],
            normalize=values["normalise"],
            long=values["long"],
            dimensions=values.get("dimensions") or 0,
        )

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        vectors: Sequence[Any] = model.embedder(option, sparse=self.sparse).vectors([item.value for item in items])
        return vectors

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        """Return the vectors as lists of numbers, and what was not read, or read in windows, if a text did not fit."""
        truncated = [sum(example.truncated for example in item.examples) for item in items]
        counts = [len(item.examples) for item in items]
        return {
            "vectors": np.stack(results).tolist(),
            **({"truncated": truncated} if any(truncated) else {}),
            **({"windows": counts} if max(counts) > 1 else {}),
        }
