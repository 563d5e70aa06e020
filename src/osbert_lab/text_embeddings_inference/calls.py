"""Calls of Hugging Face's text-embeddings-inference (TEI): POST /embed, /embed_sparse, /rerank; others are files.

They name no model: the first that can answers. A text that is too long is refused unless `truncate` is true.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field

from osbert.server.calls.contract import Call, Item, Items, RequestFields, Results
from osbert.server.calls.embed import EmbedCall
from osbert.server.calls.models import EMBED_SPARSE, ServerModel
from osbert.server.calls.schemas import Refusal, Texts
from osbert.server.clients.contract import ClientVectors, as_array, vector_request
from osbert.server.clients.openai import ClientTexts
from osbert.server.clients.rerank import RankedResults
from osbert.tasks.edges import Edge
from osbert_lab.text_embeddings_inference.contract import TEICall, TruncatingRequest
from osbert_lab.text_embeddings_inference.predict import TEIPredictCall, ZeroShotCall
from osbert_lab.text_embeddings_inference.similarity import TEISimilarityCall


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


class TEIEmbedRequest(TEISparseRequest):
    """Texts for vectors, as TEI's clients send them."""

    normalize: bool = Field(default=True, description="Scale every vector to length 1.")
    dimensions: int | None = Field(
        default=None, ge=1, description="The first numbers of each vector, for models that were trained for it."
    )


class TEIRerankRequest(TruncatingRequest):
    """A query and texts, as TEI's clients send them."""

    reads: ClassVar[tuple[str, ...]] = ("query", "texts")

    query: str
    texts: Texts
    raw_scores: bool = Field(default=False, description="Return the scores themselves, not their logistic function.")
    return_text: bool = Field(default=False, description="Return the texts, too.")


class TEIRank(BaseModel):
    """A text by its index in the request, and its relevance."""

    index: int
    score: float
    text: str | None = None


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


class TEIRerankCall(TEICall, RankedResults):
    """TEI's call for a ranking."""

    what = "rank (/rerank)"
    request = TEIRerankRequest
    reply = list[TEIRank]
    field_names = {"documents": "texts"}

    def translate(self, values: RequestFields) -> RequestFields:
        return super().translate({"query": values["query"], "documents": values["texts"]})

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return the item of the query with its texts. Raises Refusal (422) if one is cut without `truncate`."""
        items = super().items(model, values)
        if not values["truncate"]:
            for index, example in enumerate(items[0].examples):
                if example.truncated:
                    message = (
                        f"The query and the text are {example.truncated:,} pieces too long: the model reads "
                        f"{model.length} tokens. Shorten them, or send truncate: true."
                    )
                    raise Refusal(422, message, field=f"texts[{index}]")
        return items

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> list[dict[str, Any]]:
        score, texts = "score" if values["raw_scores"] else "probability", values["texts"]
        return [
            {"index": item["index"], "score": item[score]}
            | ({"text": texts[item["index"]]} if values["return_text"] else {})
            for item in self.ranking(model, items, results)
        ]


def client_calls(ranking: Edge | None) -> dict[str, Call]:
    """Return the calls by path. `ranking`: the edge of the served reranker; without one there is no /rerank."""
    calls: dict[str, Call] = {
        "/embed": TEIEmbedCall(),
        "/embed_sparse": TEISparseCall(),
        "/similarity": TEISimilarityCall(),
        "/predict": TEIPredictCall(),
        "/zero-shot-classification": ZeroShotCall(),
    }
    return calls | ({"/rerank": TEIRerankCall(ranking)} if ranking else {})
