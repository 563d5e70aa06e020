"""Uses of text vectors: search, its evaluation, and hard negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.files import user_path
from osbert.runs.contract import Watch, ignore
from osbert.signatures import read_settings, takes_settings_of

if TYPE_CHECKING:
    from typing import Unpack

    from osbert.keywords import (
        EvaluateRetrievalKeywords,
        NearestKeywords,
    )
    from osbert.runs.similarity.retrieval import RetrievalEvaluation
    from osbert.runs.similarity.search import Neighbourhood


@takes_settings_of("osbert.runs.similarity.settings:SearchOptions", "osbert.interop.opening:Opening")
def search(
    vectors: str | Path,
    queries: str | Sequence[str] | Sequence[tuple[str, str]] | Any,
    *,
    model: str | PathLike[str] | None = None,
    also: Sequence[str | Path] = (),
    watch: Watch = ignore,
    **options: Unpack[NearestKeywords],
) -> list[Neighbourhood]:
    """Return the texts of a file of vectors that are nearest to each query, in the order of the queries.

    `vectors`: a file that `embed` wrote. `queries`: a text, a list of texts, or of pairs where the file is of pairs,
    which the file's model embeds; or an array (Q, D), for which no model is opened. `model`: where the model is, if it
    has moved. `also`: further files of the same texts, dense or sparse, whose rankings are fused with the first one's.
    `options`: top=10, above=0.5 (the least cosine), backend="faiss", hybrid=True and what else
    `osbert search` takes; trust and verify are as for `load`. `watch` is called with a WorkProgress
    (osbert.runs.contract) after each block. Raises osbert.errors.UserError if the model is not the file's, and
    for queries that are not texts, vectors of another width, and vectors that are not finite.

    >>> vectors = osbert.embed("encoder", "more.csv", out="vectors.npy")
    >>> (found,) = osbert.search("vectors.npy", "a good play", top=2)
    >>> [near.texts[0] for near in found.nearest]
    ['a good play', 'a good play']
    """
    import numpy as np

    from osbert.inference.model import samples
    from osbert.interop.hub import locate
    from osbert.runs.similarity.fused_search import search_files as run
    from osbert.runs.similarity.search import SearchRequest

    searching, opening = read_settings(search, options)
    request = SearchRequest(
        vectors=user_path(vectors, instead="load(model).embed(texts)"),
        options=searching,
        model=None if model is None else locate(model, watch=watch).path,
        also=tuple(map(user_path, also)),
        opening=opening,
    )
    if isinstance(queries, np.ndarray):
        return run(request, queries, watch=watch)
    return run(request, samples([queries] if isinstance(queries, str) else queries, "search"), watch=watch)


@takes_settings_of("osbert.runs.similarity.retrieval:RetrievalOptions", "osbert.interop.opening:Opening")
def evaluate_retrieval(
    model: str | PathLike[str] | None = None,
    *,
    corpus: Any = None,
    queries: Any = None,
    qrels: Any = None,
    data: Any = None,
    results: Mapping[str, Any] | Sequence[str | Path] = (),
    run: str | Path | None = None,
    watch: Watch = ignore,
    **options: Unpack[EvaluateRetrievalKeywords],
) -> RetrievalEvaluation:
    """Measure a search by judged documents, as trec_eval does: of `model`, of BM25 and of finished rankings.

    `corpus`, `queries`: files, rows (dicts or a DataFrame with _id, text and perhaps title), or dicts of texts by id.
    `qrels`: a file, rows, or a dict {query: {document: relevance}}. `data`: one table with query, document and label
    in place of `queries` and `qrels`; without `corpus` its documents are the corpus. `results`: TREC runs, or rankings
    {query: {document: score}} by the name of their system; for these alone `qrels` suffices. `run`: a file for the
    ranking of the first system, a TREC run. `options`: those of `osbert evaluate retrieval`, such as
    measures="ndcg@10,map" and bm25=False; trust and verify are as for `load`. `watch` is called with each event.

    The result has `measures` and `by_query` of the first system, all `systems` with their intervals, the `tests` of
    each pair, and `to_dict`. Raises osbert.errors.UserError, before anything is computed, for invalid data and for
    judgements of unknown ids.

    >>> corpus, queries = {"1": "a good film", "2": "the bad play"}, {"q": "the good film"}
    >>> found = osbert.evaluate_retrieval("encoder", corpus=corpus, queries=queries, qrels={"q": {"1": 1}})
    >>> [system.name for system in found.systems], sorted(found.by_query)
    (['encoder', 'bm25'], ['q'])
    """
    from osbert.errors import UserError
    from osbert.interop.hub import locate
    from osbert.runs.compare import run_names
    from osbert.runs.similarity.retrieval import RetrievalInput
    from osbert.runs.similarity.retrieval import evaluate_retrieval as run_evaluation

    if not isinstance(results, Mapping):
        files = [results] if isinstance(results, str | Path) else [*results]
        if wrong := [file for file in files if not isinstance(file, str | Path)]:
            message = (
                f"results must be paths of TREC runs, or rankings by the name of their system, not {wrong[0]!r:.60}."
            )
            raise UserError(message, code="invalid-value")
        paths = [Path(file) for file in files]
        results = dict(zip(run_names(paths), paths))
    measuring, opening = read_settings(evaluate_retrieval, options)
    return run_evaluation(
        RetrievalInput(corpus=corpus, queries=queries, qrels=qrels, data=data, results=results),
        model=None if model is None else locate(model, watch=watch).path,
        run=None if run is None else user_path(run),
        options=measuring,
        opening=opening,
        watch=watch,
    )
