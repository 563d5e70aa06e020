"""POST /embed and /embed_sparse: vectors of texts, as clients of TEI and of the Inference API ask for them."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from osbert.server.calls.contract import Items, RequestFields, Results
from osbert.server.calls.embed import EmbedCall
from osbert.server.calls.models import EMBED_SPARSE, ServerModel
from osbert.server.clients.contract import ClientVectors, as_array, vector_request
from osbert.server.clients.openai import ClientTexts
from osbert_lab.text_embeddings_inference.contract import ParameterRequest, TEICall, TruncatingRequest


class TEISparseRequest(TruncatingRequest):
    """Texts for sparse vectors, as TEI's clients send them."""

    reads: ClassVar[tuple[str, ...]] = ("inputs",)

    inputs: ClientTexts
    prompt_name: str | None = Field(
        default=None, max_length=200, description="The name of a prompt of the model, or the role query or document."
    )


class TEIWeight(BaseModel):
    """A weight of a sparse vector, by the number of its piece."""

    index: int
    value: float


class TEIEmbedRequest(TEISparseRequest, ParameterRequest):
    """Texts for vectors, as TEI's clients send them, or with `parameters` those of the Inference API."""

    normalize: bool = Field(default=True, description="Scale every vector to length 1.")
    dimensions: int | None = Field(
        default=None, ge=1, description="The first numbers of each vector, for models that were trained for it."
    )
    encoding_format: Literal["float"] = Field(default="float", description="Numbers are sent as numbers.")


class TEIEmbedCall(TEICall, ClientVectors):
    """TEI's call for vectors."""

    what = "embed (/embed)"
    request = TEIEmbedRequest
    reply = list[list[float]]
    field_names = {"texts": "inputs", "role": "prompt_name"}

    def translate(self, values: RequestFields) -> RequestFields:
        return vector_request(
            values["inputs"],
            role=values["prompt_name"],
            normalise=values["normalize"],
            long="truncate" if values["truncate"] else "error",
            dimensions=values["dimensions"],
        )

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> list[list[float]]:
        rows: list[list[float]] = as_array(results).tolist()
        return rows


class SparseCall(EmbedCall):
    """Computes a sparse vector for each text."""

    sparse = True

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        """Return the weights of each text that are not 0, by the numbers of their pieces."""
        matrix: Any = super().read(model, items, option)
        weights = zip(matrix.indices.tolist(), matrix.data.tolist(), strict=True)
        return [
            [{"index": index, "value": value} for index, value in islice(weights, count)]
            for count in np.diff(matrix.indptr).tolist()
        ]


class TEISparseCall(TEICall):
    """TEI's call for sparse vectors."""

    what = "embed sparsely (/embed_sparse)"
    needs = EMBED_SPARSE
    call = SparseCall()
    request = TEISparseRequest
    reply = list[list[TEIWeight]]
    field_names = {"texts": "inputs", "role": "prompt_name"}

    def translate(self, values: RequestFields) -> RequestFields:
        long = "truncate" if values["truncate"] else "error"
        return vector_request(values["inputs"], role=values["prompt_name"], long=long)

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> list[Any]:
        return [*results]
