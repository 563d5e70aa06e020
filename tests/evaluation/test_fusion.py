"""Fused rankings: weights that are fitted on queries, as a plain search over all of them finds them."""

from __future__ import annotations

import numpy as np
import pytest

import osbert
from osbert.evaluation.fusion import FOLDS, fit_weights, fuse_by_rank, fuse_scores, sum_reciprocal_ranks
from osbert.evaluation.retrieval import Measure, RankedDocuments
from refusals import refusal

QUERIES = [f"q{number}" for number in range(12)]


@pytest.fixture
def data() -> tuple[dict, dict]:
    """Return judgements, and three systems of which two know something."""
    rng = np.random.default_rng(3)
    judgements = {query: {f"d{rng.integers(40)}": float(grade) for grade in (1, 2)} for query in QUERIES}
    systems: dict = {}
    for system, skill in (("a", 1.2), ("b", 0.8), ("c", 0.0)):
        systems[system] = {}
        for query in QUERIES[1:] if system == "c" else QUERIES:
            documents = [f"d{number}" for number in rng.permutation(40)[:25]]
            scores = rng.normal(size=25) + skill * np.array([judgements[query].get(name, 0) for name in documents])
            systems[system][query] = RankedDocuments.of(documents, 10 * scores)
    return judgements, systems


def test_weights_are_those_of_a_plain_search(data: tuple[dict, dict]) -> None:
    judgements, systems = data
    measure = Measure.of("ndcg@5")
    grid = [(a, b, 10 - a - b) for a in range(11) for b in range(11 - a)]

    def rank(query: str, weights: tuple[int, ...]) -> RankedDocuments:
        empty = RankedDocuments()
        rankings = [systems[name].get(query, empty) for name in systems]
        pairs = [dict(zip(ranked.documents, ranked.scores.tolist())) for ranked in rankings]
        fused = fuse_scores(pairs, [weight / 10 for weight in weights])
        return RankedDocuments.of([*fused], fused.values())

    def score(query: str, weights: tuple[int, ...]) -> float:
        judged = judgements[query]
        relevance = np.array([judged.get(name, 0) for name in rank(query, weights).documents], float)
        return measure.score(relevance, np.array([*judged.values()]))

    def best(queries: list[str]) -> tuple[int, ...]:
        means = {weights: np.mean([score(query, weights) for query in queries]) for weights in grid}
        highest = max(means.values())
        equal = [weights for weights, mean in means.items() if mean > highest - 1e-12]
        return min(equal, key=lambda weights: sum(weight**2 for weight in weights))

    fitted = fit_weights(systems, judgements, measure)
    assert [10 * weight for weight in fitted.weights.values()] == pytest.approx(best(QUERIES))
    for number, query in enumerate(QUERIES):
        others = [name for index, name in enumerate(QUERIES) if index % FOLDS != number % FOLDS]
        expected = rank(query, best(others))
        assert fitted.rankings[query].documents == expected.documents
    assert fitted.weights["c"] < fitted.weights["a"]


def test_fusion_by_rank_is_that_of_a_search(data: tuple[dict, dict]) -> None:
    judgements, systems = data
    fused = fuse_by_rank(systems, judgements)[QUERIES[1]]
    rankings = [[int(name[1:]) for name in systems[name][QUERIES[1]].documents] for name in systems]
    expected = [*sum_reciprocal_ranks(rankings)]
    assert sorted(map(int, (name[1:] for name in fused.documents))) == sorted(expected)
    assert int(fused.documents[0][1:]) == expected[0]


def test_fusions_are_systems_of_an_evaluation(data: tuple[dict, dict]) -> None:
    judgements, systems = data
    results = {
        name: {query: dict(zip(ranked.documents, ranked.scores.tolist())) for query, ranked in rankings.items()}
        for name, rankings in systems.items()
    }
    found = osbert.evaluate_retrieval(qrels=judgements, results=results, fuse=True)
    assert [system.name for system in found.systems] == ["a", "b", "c", "rrf", "weighted"]
    assert sum(found.weights.values()) == pytest.approx(1) and found.to_dict()["weights"] == found.weights
    assert any("--weights" in line for line in found.lines())
    assert not osbert.evaluate_retrieval(qrels=judgements, results=results).weights
    with refusal("too-little-data"):
        osbert.evaluate_retrieval(qrels=judgements, results={"a": results["a"]}, fuse=True)
    with refusal("duplicate-name"):
        osbert.evaluate_retrieval(qrels=judgements, results={"a": results["a"], "rrf": results["b"]}, fuse=True)
