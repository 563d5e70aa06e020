"""POST /v1/rerank and /v2/rerank: documents by relevance, as clients of Jina and Cohere ask for them.

A served reranker is a model whose answer is a ranking. Its own answer at /v1/rerank has the fields of both APIs beside
osbert's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, create_model

from osbert.server.calls.contract import Items, RequestFields, Results
from osbert.server.calls.models import ServerModel
from osbert.server.calls.predict import OwnCall
from osbert.server.calls.schemas import Refusal, RequestBody
from osbert.server.clients.contract import ClientCall, count_tokens
from osbert.tasks.edges import Edge


class DocumentObject(BaseModel, title="DocumentText"):
    """A document as an object."""

    __qualname__ = "DocumentText"

    text: str


class RankedDocument(BaseModel):
    """A document by its index in the request, its relevance from 0 to 1, and the document itself if asked for."""

    index: int
    relevance_score: float
    document: DocumentObject | None = None


class RankUsage(BaseModel):
    """The tokens that were read."""

    total_tokens: int


class RankingRequest(RequestBody):
    """A query and documents."""

    reads: ClassVar[tuple[str, ...]] = ("query", "documents")

    model: str | None = Field(default=None, description="The model's name; the first reranker when left out.")
    query: str
    documents: Annotated[list[str | DocumentObject], Field(min_length=1, fail_fast=True)] = Field(
        description="Texts, or objects with a text."
    )
    top_n: int | None = Field(default=None, ge=1, description="Return only so many documents, the best.")

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "query", self.query
        yield from ((f"documents[{index}]", text) for index, text in enumerate(texts_of(self.documents)))


def is_ranking(edge: Edge) -> bool:
    """Return whether a kind ranks documents by a query."""
    fields = [(field.name, field.type) for field in edge.request]
    ranks = any(field.type == "ranking" for field in edge.answer)
    return ranks and fields == [("query", "text"), ("documents", "texts")]


def texts_of(documents: Sequence[Any]) -> list[str]:
    """Return the texts of documents that are texts, or objects with a text.

    >>> texts_of(["a", {"text": "b"}])
    ['a', 'b']
    """
    return [
        document if isinstance(document, str) else document["text"] if isinstance(document, dict) else document.text
        for document in documents
    ]


class RankedResults(ClientCall):
    """A call of another API for a ranking. `edge`: that of the served reranker."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.call = OwnCall(edge)
        self.needs = edge.call

    def translate(self, values: RequestFields) -> RequestFields:
        return {"query": values["query"], "documents": texts_of(values["documents"])}

    def ranking(self, model: ServerModel, items: Items, results: Results) -> list[dict[str, Any]]:
        """Return the items of the ranking, the best first."""
        name = next(field.name for field in self.edge.answer if field.type == "ranking")
        ranked: list[dict[str, Any]] = self.call.fields(model, {}, items, results)[name]
        return ranked


def ranked_documents(
    ranking: Sequence[dict[str, Any]], documents: Sequence[str] | None, top: int | None
) -> list[dict[str, Any]]:
    """Return a ranking as Jina and Cohere spell it; with the `documents`, if there are some."""
    return [
        {"index": item["index"], "relevance_score": item["probability"]}
        | ({"document": {"text": documents[item["index"]]}} if documents is not None else {})
        for item in ranking[:top]
    ]


class JinaCall(RankedResults):
    """The own call of a reranker, which Jina's clients and those of Cohere's first version can call, too."""

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge)
        self.what = self.call.what
        more: Any = {
            "return_documents": (bool, Field(default=True, description="Whether `results` has the documents."))
        }
        bases: Any = (RankingRequest, self.call.request)
        self.request = create_model(self.call.request.__name__, __base__=bases, __doc__=edge.about, **more)
        fields: Any = {"results": (list[RankedDocument], ...), "usage": (RankUsage, ...)}
        reply = self.call.reply
        self.reply = create_model(reply.__name__, __base__=reply, __doc__=reply.__doc__, **fields)

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        """Return the answer of the call, and `results` and `usage` as Jina has them."""
        answer: dict[str, Any] = self.call.answer(model, values, items, results)
        texts = texts_of(values["documents"]) if values.get("return_documents") else None
        ranked = ranked_documents(self.ranking(model, items, results), texts, values.get("top_n"))
        return {**answer, "results": ranked, "usage": {"total_tokens": count_tokens(items)}}

    def refuse(self, refusal: Refusal) -> tuple[int, Any]:
        """Return osbert's error with Jina's `detail` and Cohere's `message` beside it."""
        return refusal.status, {**refusal.content(), "detail": refusal.message, "message": refusal.message}


class CohereRequest(RankingRequest, title="CohereRerankRequest"):
    """A query and documents, as clients of Cohere's second version send them."""


class CohereAnswer(BaseModel, title="CohereRerank"):
    """What /v2/rerank answers."""

    __qualname__ = "CohereRerank"

    id: str
    results: list[RankedDocument]
    meta: dict[str, Any]


class CohereError(BaseModel):
    """An answer to Cohere's clients that is not 200."""

    message: str


class CohereCall(RankedResults):
    """Cohere's call for a ranking."""

    what = "rank (/v2/rerank)"
    request = CohereRequest
    reply = CohereAnswer
    error = CohereError

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        ranked = ranked_documents(self.ranking(model, items, results), None, values["top_n"])
        return {"id": str(uuid.uuid4()), "results": ranked, "meta": {"api_version": {"version": "2"}}}

    def refuse(self, refusal: Refusal) -> tuple[int, Any]:
        """Return Cohere's error."""
        return cohere_refusal(refusal)


def cohere_refusal(refusal: Refusal) -> tuple[int, dict[str, str]]:
    """Return Cohere's error, which has no field: its message says which text is at fault."""
    where = f"{refusal.field}: " if "[" in refusal.field else ""
    return refusal.status, {"message": where + refusal.message.removeprefix(where)}
