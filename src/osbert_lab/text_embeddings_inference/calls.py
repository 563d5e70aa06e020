"""Calls of Hugging Face's text-embeddings-inference (TEI): POST /embed, /embed_sparse, /rerank, /predict.

They name no model: the first that can answers. A text that is too long is refused unless `truncate` is true. Errors are
{"error", "error_type"}.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from osbert.server.calls.contract import Call, Item, Items, RequestFields, Results
from osbert.server.calls.embed import EmbedCall
from osbert.server.calls.models import EMBED_SPARSE, ServerModel
from osbert.server.calls.predict import PredictCall
from osbert.server.calls.schemas import Refusal, RequestBody, Texts
from osbert.server.clients.contract import ClientCall, ClientVectors, as_array, vector_request
from osbert.server.clients.openai import ClientTexts
from osbert.server.clients.rerank import RankedResults
from osbert.tasks.edges import Edge

ERROR_TYPES = {429: "Overloaded", 500: "Backend", 503: "Unhealthy", 504: "Backend"}
Sequence1or2 = Annotated[list[str], Field(min_length=1, max_length=2)]


class TEIError(BaseModel):
    """An answer to TEI's clients that is not 200."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]


class TruncatingRequest(RequestBody):
    """A request of TEI's clients."""

    truncate: bool | None = Field(default=None, description="Whether a text that is too long is cut, not refused.")
    truncation_direction: Literal["right", "Right"] = Field(
        default="right", description="The end of a text that is cut; osbert cuts no beginnings."
    )


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


class TEIPredictRequest(TruncatingRequest):
    """A text, a pair of texts, or a list of lists of one text or two, as TEI's clients send them."""

    reads: ClassVar[tuple[str, ...]] = ("inputs",)

    inputs: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=2)]
        | Annotated[list[Sequence1or2], Field(min_length=1)]
    )
    raw_scores: Literal[False] = Field(default=False, description="Probabilities are returned, not scores.")

    def count(self) -> tuple[str, int]:
        return "inputs", len(self.inputs) if isinstance(self.inputs, list) else 1


class TEIPrediction(BaseModel):
    """A label and its probability."""

    score: float
    label: str


class TEICall(ClientCall):
    """A call of TEI."""

    error = TEIError

    def refuse(self, refusal: Refusal) -> tuple[int, Any]:
        """Return TEI's error."""
        kind = ERROR_TYPES.get(refusal.status, "Validation")
        message = f"`{refusal.field}`: {refusal.message}" if refusal.field else refusal.message
        return refusal.status, {"error": message, "error_type": kind}


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


class TEIPredictCall(TEICall):
    """TEI's call for a classifier: the probability of each label, the highest first."""

    what = "predict (/predict)"
    needs = "predict"
    call = PredictCall()
    request = TEIPredictRequest
    reply = list[TEIPrediction] | list[list[TEIPrediction]]
    field_names = {"texts": "inputs"}

    def translate(self, values: RequestFields) -> RequestFields:
        return {"texts": [given[0] if len(given) == 1 else given for given in _inputs(values["inputs"])]}

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each input. Raises Refusal (422) for a model without labels, and for `truncate`."""
        if values["truncate"]:
            raise Refusal(422, "osbert does not cut the texts of predictions: leave truncate out.", field="truncate")
        if not model.facts().get("labels"):
            raise Refusal(422, f"The model {model.name} ({model.edge.kind}) predicts no labels.", field="inputs")
        return super().items(model, values)

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> list[Any]:
        predictions = [
            [
                {"score": probability, "label": label}
                for label, probability in sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])
            ]
            for prediction in results
        ]
        inputs = values["inputs"]
        return predictions if isinstance(inputs, list) and isinstance(inputs[0], list) else predictions[0]


def _inputs(inputs: Any) -> list[Any]:
    """Return the inputs of a request, each as a list of its texts.

    >>> _inputs("a"), _inputs(["a", "b"]), _inputs([["a"], ["b", "c"]])
    ([['a']], [['a', 'b']], [['a'], ['b', 'c']])
    """
    if isinstance(inputs, str):
        return [[inputs]]
    return [inputs] if isinstance(inputs[0], str) else list(inputs)


def client_calls(ranking: Edge | None) -> dict[str, Call]:
    """Return the calls of TEI by path. `ranking`: the edge of the served reranker; without one there is no /rerank."""
    calls: dict[str, Call] = {"/embed": TEIEmbedCall(), "/embed_sparse": TEISparseCall(), "/predict": TEIPredictCall()}
    return calls | ({"/rerank": TEIRerankCall(ranking)} if ranking else {})
