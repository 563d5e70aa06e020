"""POST /v2/embed: vectors as clients of Cohere's second version ask for them."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from osbert.server.calls.contract import Call, Item, Items, RequestFields, Results
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Refusal, RequestBody, Texts
from osbert.server.clients.contract import ClientVectors, as_array, as_base64, count_tokens, vector_request
from osbert.server.clients.rerank import CohereError, cohere_refusal
from osbert.tasks.edges import Edge

ROLES = {"search_query": "query", "search_document": "document"}
"""The roles of those types of input that have one."""


class CohereEmbedRequest(RequestBody):
    """Texts for vectors, as Cohere's clients send them."""

    reads: ClassVar[tuple[str, ...]] = ("texts",)

    texts: Texts
    model: str | None = Field(default=None, description="The model's name; an encoder when left out.")
    input_type: Literal["search_query", "search_document", "classification", "clustering"] = Field(
        description="search_query and search_document are the roles query and document."
    )
    embedding_types: Annotated[list[Literal["float", "base64"]], Field(min_length=1)] = Field(
        default=["float"], description="base64: the float32 numbers of a vector, little-endian."
    )
    output_dimension: int | None = Field(
        default=None, ge=1, description="The first numbers of each vector, for models that were trained for it."
    )
    truncate: Literal["NONE", "END"] = Field(
        default="END", description="END: a text that is too long is cut, and meta.warnings says so. NONE: refused."
    )


class CohereEmbeddings(BaseModel):
    """What /v2/embed answers."""

    id: str
    embeddings: dict[str, list[list[float]] | list[str]]
    texts: list[str]
    meta: dict[str, Any]


class CohereEmbedCall(ClientVectors):
    """Cohere's call for vectors."""

    what = "embed (/v2/embed)"
    request = CohereEmbedRequest
    reply = CohereEmbeddings
    error = CohereError

    def translate(self, values: RequestFields) -> RequestFields:
        return vector_request(
            values["texts"],
            role=ROLES.get(values["input_type"]),
            dimensions=values.get("dimensions", values["output_dimension"]),
            long="truncate" if values["truncate"] == "END" else "error",
        )

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        return super().items(model, {**values, "dimensions": values["output_dimension"]})

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        vectors = as_array(results)
        meta: dict[str, Any] = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": count_tokens(items)}}
        if cut := sum(any(example.truncated for example in item.examples) for item in items):
            meta["warnings"] = [f"{cut:,} of {len(items):,} texts were cut to the {model.length} tokens that are read."]
        kinds = values["embedding_types"]
        embeddings = {kind: as_base64(vectors) if kind == "base64" else vectors.tolist() for kind in kinds}
        return {"id": str(uuid.uuid4()), "embeddings": embeddings, "texts": values["texts"], "meta": meta}

    def refuse(self, refusal: Refusal) -> tuple[int, Any]:
        """Return Cohere's error."""
        return cohere_refusal(refusal)


def client_calls(ranking: Edge | None) -> dict[str, Call]:
    """Return the call by its path, whatever else is served."""
    return {"/v2/embed": CohereEmbedCall()}
