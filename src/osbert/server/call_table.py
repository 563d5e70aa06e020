"""The table of calls: osbert's own, those that the kinds of the served models declare, and those of other APIs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from osbert.errors import UserError
from osbert.extensions import extensions
from osbert.server.calls.attention import AttentionCall
from osbert.server.calls.contract import Call
from osbert.server.calls.embed import EmbedCall
from osbert.server.calls.explain import ExplainCall
from osbert.server.calls.fill_mask import FillCall
from osbert.server.calls.models import ATTENTION, EXPLAIN, SEARCH
from osbert.server.calls.predict import AnswerCall, OwnCall, PredictCall, TagCall
from osbert.server.calls.search import SearchCall
from osbert.server.clients.openai import EmbeddingsCall
from osbert.server.clients.rerank import CohereCall, JinaCall, is_ranking
from osbert.tasks.edges import Edge

CALLS: Mapping[str, Call] = {
    "predict": PredictCall(),
    "embed": EmbedCall(),
    "fill-mask": FillCall(),
    "answer": AnswerCall(),
    "tag": TagCall(),
    EXPLAIN: ExplainCall(),
    ATTENTION: AttentionCall(),
    SEARCH: SearchCall(),
    **{name: extension.load()() for name, extension in extensions("osbert.server.calls").items()},
}
"""osbert's own calls by name, and those that other packages add by entry points in the group `osbert.server.calls`."""
RERANK = "rerank"
"""The call whose path, /v1/rerank, is Jina's."""


def all_calls(edges: Iterable[Edge]) -> dict[str, Call]:
    """Return osbert's calls and those of `edges`. Raises UserError if two kinds declare different calls of one name."""
    calls, kinds = dict(CALLS), list(edges)
    for edge in kinds:
        # Two models of one kind have equal edges and share a call; any other repetition of a name is an error.
        before = calls.get(edge.call)
        if edge.is_own and isinstance(before, OwnCall) and before.edge == edge:
            continue
        if edge.is_own and before:
            raise UserError(
                f"The kind {edge.kind} declares the call /v1/{edge.call}, but another kind uses that name.",
                code="invalid-component",
            )
        if edge.is_own:
            calls[edge.call] = OwnCall(edge)
        elif edge.call and not before:
            known = ", ".join(CALLS)
            raise UserError(
                f"The kind {edge.kind} is served by the call {edge.call}, which does not exist; the calls are "
                f"{known}. Declare the fields of its request and answer.",
                code="invalid-component",
            )
    return calls | client_calls(kinds)


def client_calls(edges: Iterable[Edge]) -> dict[str, Call]:
    """Return the calls of other APIs by path, those for rankings only if a reranker is among the served kinds.

    Jina's path is that of a reranker's own call, by whose name it is in the table. Other packages add calls by entry
    points in the group `osbert.server.clients`: functions of the edge of the reranker, None without one.
    """
    calls: dict[str, Call] = {"/v1/embeddings": EmbeddingsCall()}
    ranking = next((edge for edge in edges if edge.call == RERANK and is_ranking(edge)), None)
    if ranking:
        calls |= {RERANK: JinaCall(ranking), "/v2/rerank": CohereCall(ranking)}
    for extension in extensions("osbert.server.clients").values():
        calls |= extension.load()(ranking)
    return calls


def path_of(name: str) -> str:
    """Return the path of a call; names of the calls of other APIs are paths.

    >>> path_of("embed"), path_of("/embed")
    ('/v1/embed', '/embed')
    """
    return name if name.startswith("/") else f"/v1/{name}"
