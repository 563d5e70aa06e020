"""The table of the calls of other APIs, by path."""

from __future__ import annotations

from collections.abc import Iterable

from osbert.server.calls.contract import Call
from osbert.server.clients.openai import EmbeddingsCall
from osbert.server.clients.rerank import CohereCall, JinaCall, is_ranking
from osbert.server.clients.tei import TEIEmbedCall, TEIPredictCall, TEIRerankCall
from osbert.tasks.edges import Edge

RERANK = "rerank"
"""The call whose path, /v1/rerank, is Jina's."""


def client_calls(edges: Iterable[Edge]) -> dict[str, Call]:
    """Return the calls of other APIs by path, those for rankings only if a reranker is among the served kinds.

    Jina's path is that of a reranker's own call, by whose name it is in the table.
    """
    calls: dict[str, Call] = {
        "/v1/embeddings": EmbeddingsCall(),
        "/embed": TEIEmbedCall(),
        "/predict": TEIPredictCall(),
    }
    ranking = next((edge for edge in edges if edge.call == RERANK and is_ranking(edge)), None)
    if ranking:
        calls |= {RERANK: JinaCall(ranking), "/v2/rerank": CohereCall(ranking), "/rerank": TEIRerankCall(ranking)}
    return calls
