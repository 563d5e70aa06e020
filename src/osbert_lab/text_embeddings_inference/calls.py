"""The table of the calls of Hugging Face's text-embeddings-inference (TEI), with POST /rerank; others are files.

They name no model: the first that can answers. A text that is too long is refused unless `truncate` is true.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, Field

from osbert.server.calls.contract import Call, Item, Items, RequestFields, Results
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Refusal, Texts
from osbert.server.clients.rerank import RankedResults
from osbert.tasks.edges import Edge
from osbert_lab.text_embeddings_inference.contract import TEICall, TruncatingRequest
from osbert_lab.text_embeddings_inference.pipelines import EncoderCall, FillMaskCall, QuestionCall, TokenCall
from osbert_lab.text_embeddings_inference.predict import TEIPredictCall, ZeroShotCall
from osbert_lab.text_embeddings_inference.similarity import TEISimilarityCall
from osbert_lab.text_embeddings_inference.vectors import TEIEmbedCall, TEISparseCall


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
        "/token-classification": TokenCall(),
        "/question-answering": QuestionCall(),
        "/fill-mask": FillMaskCall(),
        "/inference": EncoderCall(),
    }
    return calls | ({"/rerank": TEIRerankCall(ranking)} if ranking else {})
