"""Rankings of several systems fused: by their ranks, or by sums of scores with weights fitted on judged queries.

A weighted sum takes the first 100 of each ranking, whose scores are scaled to 0 (the lowest) to 1 (the highest) query
by query; what a ranking lacks has 0. Weights are multiples of 1/10 that sum to 1, and all of them are tried.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from osbert.errors import UserError
from osbert.evaluation.retrieval import Judgements, Measure, RankedDocuments, Rankings
from osbert.tasks.ranking_measures import Floats

RANK = 60
"""The constant of reciprocal rank fusion (Cormack et al. 2009, section 2)."""
DEPTH = 100
"""First texts of each ranking that are fused."""
STEPS, FOLDS = 10, 5
"""Weights are multiples of 1 / STEPS; parts of the queries, each scored with weights of the others."""
MOST = 4
"""Most rankings whose weights are fitted: for four there are 286 combinations."""
Key = TypeVar("Key", int, str)


def sum_reciprocal_ranks(rankings: Iterable[Iterable[Key]]) -> dict[Key, float]:
    """Return the sums of 1 / (60 + rank) over the rankings, the highest first; equal ones by their keys.

    >>> [*sum_reciprocal_ranks([[3, 1, 2], [2, 3]])]
    [3, 2, 1]
    """
    scores: dict[Key, float] = defaultdict(float)
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] += 1 / (RANK + rank)
    return _sort_scores(scores)


def scale_scores(ranking: Mapping[Key, float]) -> dict[Key, float]:
    """Return the scores of a ranking scaled to 0 to 1; equal ones are 1.

    >>> scale_scores({"a": 30.0, "b": 10.0, "c": 20.0})
    {'a': 1.0, 'b': 0.0, 'c': 0.5}
    """
    low, high = min(ranking.values(), default=0), max(ranking.values(), default=0)
    return {key: (score - low) / (high - low) if high > low else 1.0 for key, score in ranking.items()}


def fuse_scores(rankings: Sequence[Mapping[Key, float]], weights: Sequence[float]) -> dict[Key, float]:
    """Return the weighted sums of the scaled scores of several rankings, the highest first; equal ones by their keys.

    >>> fuse_scores([{"a": 0.9, "b": 0.5}, {"b": 7.0, "c": 3.0}], [0.25, 0.75])
    {'b': 0.75, 'a': 0.25, 'c': 0.0}
    """
    scores: dict[Key, float] = defaultdict(float)
    for ranking, weight in zip(rankings, weights, strict=True):
        for key, score in scale_scores(ranking).items():
            scores[key] += weight * score
    return _sort_scores(scores)


def _sort_scores(scores: Mapping[Key, float]) -> dict[Key, float]:
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


def read_weights(text: str, names: Sequence[str]) -> list[float]:
    """Return weights such as "0.7,0.3", one for each of `names`. Raises UserError for another number of them.

    >>> read_weights("0.7, 0.3", ["dense", "bm25"])
    [0.7, 0.3]
    """
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError:
        weights = []
    if len(weights) != len(names) or not all(0 <= weight < np.inf for weight in weights) or not any(weights):
        zeros = " One of them at least must be above 0." if weights and not any(weights) else ""
        raise UserError(
            f"--weights {text}: give {len(names)} numbers of 0 or more, separated by commas: of {', '.join(names)}."
            f"{zeros}",
            code="invalid-value",
        )
    return weights


@dataclass(frozen=True, kw_only=True)
class FittedFusion:
    """Weights by system, fitted on all queries, and the rankings of queries with weights of the others."""

    weights: Mapping[str, float]
    rankings: Rankings


def fuse_by_rank(systems: Mapping[str, Rankings], judgements: Judgements) -> Rankings:
    """Return the reciprocal rank fusion of the systems' rankings for each judged query."""
    fused: dict[str, RankedDocuments] = {}
    for query in judgements:
        scores = sum_reciprocal_ranks(_first(rankings, query) for rankings in systems.values())
        fused[query] = RankedDocuments.of([*scores], scores.values())
    return fused


def fit_weights(systems: Mapping[str, Rankings], judgements: Judgements, measure: Measure) -> FittedFusion:
    """Return the weights with the highest mean of a measure; of equal ones the most even.

    Query i is scored with weights that were fitted on the queries j with another i % 5 (of fewer queries, on all
    others), so that no query is scored by weights that have seen it. Raises UserError for one query alone, and for
    fewer than 2 or more than 4 systems.
    """
    if not 2 <= len(systems) <= MOST or len(judgements) < 2:
        raise UserError(
            f"Weights are fitted for 2 to {MOST} rankings on at least 2 judged queries; there are {len(systems)} "
            f"rankings ({', '.join(systems)}) and {len(judgements)}. Remove --fuse.",
            code="too-little-data",
        )
    grid = sorted(_list_weights(len(systems)), key=lambda weights: float(np.square(weights).sum()))
    scores = np.stack([_score_weights(systems, query, judgements[query], grid, measure) for query in judgements], 1)
    folds = np.arange(len(judgements)) % FOLDS
    rankings = {}
    for number, query in enumerate(judgements):
        weights = grid[int(scores[:, folds != folds[number]].mean(axis=1).argmax())]
        fused = fuse_scores([_first(ranking, query) for ranking in systems.values()], weights)
        rankings[query] = RankedDocuments.of([*fused], fused.values())
    best = grid[int(scores.mean(axis=1).argmax())]
    return FittedFusion(weights=dict(zip(systems, best)), rankings=rankings)


def _first(rankings: Rankings, query: str) -> dict[str, float]:
    """Return the first documents of a ranking with their scores."""
    ranked = rankings.get(query, RankedDocuments())
    return dict(zip(ranked.documents[:DEPTH], ranked.scores[:DEPTH].tolist()))


def _list_weights(count: int) -> Iterator[tuple[float, ...]]:
    """Yield all weights of `count` rankings.

    >>> len(list(_list_weights(3))), next(_list_weights(3))
    (66, (0.0, 0.0, 1.0))
    """
    # Bars between STEPS stars: the numbers of stars between them are the weights.
    for bars in itertools.combinations(range(STEPS + count - 1), count - 1):
        ends = (-1, *bars, STEPS + count - 1)
        yield tuple((end - start - 1) / STEPS for start, end in itertools.pairwise(ends))


def _score_weights(
    systems: Mapping[str, Rankings],
    query: str,
    judged: Mapping[str, float],
    grid: Sequence[Sequence[float]],
    measure: Measure,
) -> Floats:
    """Return the scores (W,) of a query with each of W weights."""
    scaled = [scale_scores(_first(rankings, query)) for rankings in systems.values()]
    documents = sorted({document for scores in scaled for document in scores}, reverse=True)  # equal scores: by id
    table = np.array([[scores.get(document, 0.0) for document in documents] for scores in scaled])  # (systems, n)
    relevance = np.array([judged.get(document, 0) for document in documents], np.float64)
    values = np.array([*judged.values()], np.float64)
    orders = np.argsort(-(np.array(grid) @ table).astype(np.float32), axis=1, kind="stable")
    return np.array([measure.score(relevance[order], values) for order in orders])
