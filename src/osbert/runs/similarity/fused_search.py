"""Search in several files of vectors of the same texts, whose rankings are fused; and a reranker that comes last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.evaluation.fusion import DEPTH, fuse_rankings, fuse_scores, read_weights
from osbert.inference.vectors.lexical import bm25
from osbert.inference.vectors.reading import VectorFile
from osbert.runs.contract import Watch, ignore, report_remarks
from osbert.runs.file_options import SearchOptions
from osbert.runs.similarity.search import (
    BM25,
    FusedNeighbour,
    Neighbourhood,
    RerankedNeighbour,
    SearchRequest,
    Texts,
    search,
)


def search_files(
    request: SearchRequest, queries: Sequence[Texts] | NDArray[np.floating], *, watch: Watch = ignore
) -> list[Neighbourhood]:
    """Return what `search` returns; with further files the texts that the rankings of all put first (FusedNeighbour).

    The first 100 texts of each ranking are fused, by their ranks or with `weights`; with hybrid, BM25 is one more.
    Raises UserError as `search`, and if the files hold other texts, or an option is for one file alone.
    """
    if name := request.options.rerank:
        options = replace(request.options, rerank="", top=max(request.options.top, DEPTH))
        return _rerank(name, replace(request, options=options), queries, request.options.top, watch)
    if not request.also:
        return search(request, queries, watch=watch)
    if isinstance(queries, np.ndarray):
        raise UserError("Several files are searched for texts, not vectors.", code="options-exclude-each-other")
    paths, options = [request.vectors, *request.also], request.options
    names = [path.name for path in paths] if len({path.name for path in paths}) == len(paths) else [*map(str, paths)]
    if len({*names}) < len(names):
        raise UserError("A file of vectors is given twice.", code="duplicate-name")
    given = {"model": request.model, "above": options.above != SearchOptions().above}
    if idle := [name for name, value in given.items() if value]:
        raise UserError(
            f"--{idle[0]} is for one file of vectors: remove it, or --also.", code="options-exclude-each-other"
        )
    all_names = [*names, *([BM25] if options.hybrid else [])]
    weights = read_weights(options.weights, all_names) if options.weights else []
    alone = replace(options, hybrid=False, weights="")
    requests = [replace(request, vectors=path, options=alone, also=()) for path in paths]
    opened = [single.open_file() for single in requests]
    lines = _require_same_texts(opened)
    count = max(options.top, DEPTH)
    rankings: dict[str, list[dict[int, float]]] = {}
    unread = [(0, 0)] * len(queries)
    for name, single in zip(names, requests, strict=True):
        neighbourhoods = search(replace(single, options=replace(alone, top=count)), queries, watch=watch)
        rankings[name] = [_scores(row, lines) for row in neighbourhoods]
        unread = [max(before, (row.unread, row.length)) for before, row in zip(unread, neighbourhoods, strict=True)]
    if options.hybrid:
        texts = (" ".join(row.texts) for row in opened[0].all_rows())
        by_words = bm25(texts, [" ".join(query) for query in queries], count)
        rankings[BM25] = [dict(row) for row in by_words]
    results = []
    for number, (query, (pieces, length)) in enumerate(zip(queries, unread, strict=True)):
        of_query = {name: ranking[number] for name, ranking in rankings.items()}
        scores = [*of_query.values()]
        fused = [*fuse_scores(scores, weights)][: options.top] if weights else fuse_rankings(scores, options.top)
        nearest = [
            FusedNeighbour(
                line=row.line,
                texts=row.texts,
                ranks={name: [*ranking].index(index) + 1 for name, ranking in of_query.items() if index in ranking},
                scores={name: ranking[index] for name, ranking in of_query.items() if index in ranking},
            )
            for index, row in zip(fused, opened[0].rows(fused), strict=True)
        ]
        results.append(Neighbourhood(query=query, nearest=nearest, unread=pieces, length=length))
    return results


def _rerank(
    name: str, request: SearchRequest, queries: Sequence[Texts] | NDArray[np.floating], top: int, watch: Watch
) -> list[Neighbourhood]:
    """Return the results of a search with the `top` texts that a reranker scores highest.

    Raises UserError as `search_files`, if the model ranks nothing, and for queries that are not single texts.
    """
    from osbert.inference.engine import load
    from osbert.interop.hub import locate

    if isinstance(queries, np.ndarray) or any(len(query) != 1 for query in queries):
        raise UserError("A reranker reads queries that are single texts.", code="options-exclude-each-other")
    replace(request, options=replace(request.options, top=top)).open_file()  # which checks the options
    engine = load(locate(name, watch=watch).path, device=request.options.device, opening=request.opening)
    edge = engine.task.edge if engine.task else None
    if edge is None or not any(field.type == "ranking" for field in edge.answer):
        raise UserError(
            f"{name} is no reranker: fine-tune one (osbert finetune rerank), or remove --rerank.",
            code="unsupported-model",
        )
    report_remarks(engine, watch)
    results = []
    for neighbourhood in search_files(request, queries, watch=watch):
        nearest = neighbourhood.nearest
        texts = [(*neighbourhood.query, *(near.texts[0] for near in nearest))] if nearest else []
        scores = [float(score) for prediction in engine.predict(texts) for score in prediction.value]
        order = sorted(range(len(nearest)), key=lambda index: -scores[index])[:top]
        reranked = [
            RerankedNeighbour(score=scores[index], line=nearest[index].line, texts=nearest[index].texts, rank=index + 1)
            for index in order
        ]
        results.append(replace(neighbourhood, nearest=reranked))
    return results


def _scores(neighbourhood: Neighbourhood, lines: NDArray[np.int64]) -> dict[int, float]:
    """Return the scores of a query's texts by the index of their rows, the best first."""
    indices = np.searchsorted(lines, [near.line for near in neighbourhood.nearest]).tolist()
    return {index: near.score or 0.0 for index, near in zip(indices, neighbourhood.nearest, strict=True)}  # type: ignore[union-attr]


def _require_same_texts(opened: Sequence[VectorFile]) -> NDArray[np.int64]:
    """Return the line numbers (n,) of the texts. Raises UserError unless all files have the same texts in them."""
    lines: list[int] = []
    for rows in zip_longest(*(file.all_rows() for file in opened)):
        if differing := [file for file, row in zip(opened, rows) if row != rows[0]]:
            raise UserError(
                f"{opened[0].path} and {differing[0].path} hold vectors of different texts (row {len(lines) + 1:,}): "
                "embed the same file with each model.",
                code="mismatched-base",
            )
        lines.append(rows[0].line)
    return np.array(lines, np.int64)
