"""POST /v1/search: the texts of the served files of vectors that are nearest to queries, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from osbert.server.calls.contract import NOTHING, Call, Item, Items, RequestFields, Results
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Refusal, Reply, Request

if TYPE_CHECKING:
    from osbert.runs.similarity.search import Neighbourhood
    from osbert.runs.similarity.served_search import ServedSearch

MOST_HITS = 10_000
"""Most hits of a request: queries times k."""
MOST_RERANKED = 400
"""Most texts that a reranker reads for a request: they are one pass, during which the worker answers nobody else."""
Query = str | Annotated[list[str], Field(min_length=2, max_length=2)]


class SearchQueries(Request, title="Search"):
    """A query or several; pairs [first, second] where the files of vectors are of pairs."""

    reads: ClassVar[tuple[str, ...]] = ("query", "queries")

    query: Query | None = None
    queries: Annotated[list[Query], Field(min_length=1, fail_fast=True)] | None = None
    k: int = Field(default=10, ge=1, description=f"Most hits of a query; queries times k at most {MOST_HITS:,}.")


class SystemRank(BaseModel):
    """The rank and the score of a text in one ranking: a cosine, a dot product, a sum of MaxSim, or BM25's score."""

    rank: int
    score: float | None = None
    words: dict[str, float] | None = Field(
        default=None, description="What the words in common add to the score, as fractions; dense vectors have none."
    )


class SearchHit(BaseModel, title="Hit"):
    """A text, with its line in the embedded file. `score`: of the last step: one ranking, their fusion, a reranker."""

    __qualname__ = "Hit"

    line: int
    text: str
    pair: str | None = Field(default=None, description="The second text of a pair.")
    score: float
    systems: dict[str, SystemRank] = Field(description="By file of vectors, and bm25: those that ranked the text.")
    rank_before: int | None = Field(default=None, description="The rank before a reranker.")
    truncated: int | None = Field(
        default=None, description="The pieces that the reranker did not read, if any; of the query's in one hit alone."
    )


class SearchResult(BaseModel, title="Result"):
    """The hits of a query, the best first."""

    __qualname__ = "Result"

    query: str | list[str]
    hits: list[SearchHit]
    truncated: int | None = Field(default=None, description="The pieces of the query that were not read, if any.")


class SearchAnswer(Reply, title="Results"):
    """What /v1/search answers. `count`: the texts that were searched."""

    __qualname__ = "Results"

    count: int
    results: list[SearchResult]


class SearchCall(Call):
    """Searches the served files of vectors."""

    what = "search (/v1/search), which osbert serve --vectors FILE adds"
    request = SearchQueries
    reply = SearchAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        search = _search_of(model)
        if (values["query"] is None) == (values["queries"] is None):
            raise Refusal(422, "Give query or queries, one of the two.", field="query")
        queries = [values["query"]] if values["queries"] is None else values["queries"]
        if (hits := len(queries) * values["k"]) > MOST_HITS:
            raise Refusal(413, f"Queries times k is at most {MOST_HITS:,}, not {hits:,}.", field="k")
        depth = search.depth(values["k"])
        if search.reranker and len(queries) * depth > MOST_RERANKED:
            message = f"A reranker reads at most {MOST_RERANKED:,} texts a request, not {len(queries) * depth:,}."
            raise Refusal(413, message, field="k" if depth > MOST_RERANKED else "queries")
        items = []
        for index, query in enumerate(queries):
            field = "query" if values["queries"] is None else f"queries[{index}]"
            texts = (query,) if isinstance(query, str) else tuple(query)
            if len(texts) != search.columns:
                kind = "a pair [first, second]" if search.columns == 2 else "a text"
                raise Refusal(422, f"A query of these vectors is {kind}.", field=field)
            if not any(len(model.engine.tokenizer.encode(text)) for text in texts):  # a prompt has pieces, too
                raise Refusal(422, NOTHING, field=field)
            items.append(Item(texts, tuple(search.embedder.sequences(texts, 0))))
        return items

    def option(self, values: RequestFields) -> int:
        return int(values["k"])

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        search = _search_of(model)
        return [
            (result, search.search.text_file.count) for result in search.find([item.value for item in items], option)
        ]

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        systems = _search_of(model).search.systems
        return {"count": results[-1][1], "results": [_result_fields(result, systems) for result, _ in results]}


def _search_of(model: ServerModel) -> ServedSearch:
    assert model.search is not None
    return model.search


def _result_fields(result: Neighbourhood, systems: Sequence[str]) -> dict[str, Any]:
    hits = [_hit_fields(near, systems) for near in result.nearest]
    query = result.query[0] if len(result.query) == 1 else [*result.query]
    return {"query": query, "hits": hits, **({"truncated": result.unread} if result.unread else {})}


def _hit_fields(near: Any, systems: Sequence[str]) -> dict[str, Any]:
    from osbert.runs.similarity.search import RerankedNeighbour

    before: Any = near.before if isinstance(near, RerankedNeighbour) else near
    return {
        "line": near.line,
        **dict(zip(("text", "pair"), near.texts)),
        # The reciprocal rank in the one ranking would say less than the score there.
        "score": next(iter(before.scores.values())) if len(systems) == 1 and before is near else near.score,
        "systems": {
            name: {
                "rank": before.ranks[name],
                "score": score,
                **({"words": dict(before.words[name])} if before.words.get(name) else {}),
            }
            for name, score in before.scores.items()
        },
        **({} if before is near else {"rank_before": near.rank}),
        **({"truncated": near.unread} if before is not near and near.unread else {}),
    }
