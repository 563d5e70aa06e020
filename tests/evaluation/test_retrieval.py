"""Search is scored as trec_eval scores it: its own case, pytrec_eval on random rankings, and laws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.evaluation.retrieval import MEASURES, Measure, RankedDocuments, SystemScores, score_systems
from osbert.reading.retrieval import read_judgements, read_run
from refusals import refusal

CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
NAMES = {"map": "map", "mrr": "recip_rank", "ndcg": "ndcg"} | {
    f"{kind}@{cutoff}": f"{name}_{cutoff}"
    for kind, name in (("ndcg", "ndcg_cut"), ("map", "map_cut"), ("recall", "recall"), ("precision", "P"))
    for cutoff in CUTOFFS
}
"""Our measures -> trec_eval's."""
DOCUMENTS = st.sampled_from([f"d{number}" for number in range(12)])
RELEVANCE = st.dictionaries(DOCUMENTS, st.integers(-1, 3), min_size=1)
SCORES = st.dictionaries(DOCUMENTS, st.sampled_from([1.0, 1.0 + 1e-9, 0.5, 0.1, -3.0]))


def scores_of(
    run: Mapping[str, Mapping[str, float]], judgements: Mapping[str, Mapping[str, float]], names=tuple(NAMES)
) -> SystemScores:
    rankings = {query: RankedDocuments.of([*row], row.values()) for query, row in run.items()}
    [scores], _ = score_systems({"system": rankings}, judgements, [Measure.of(name) for name in names])
    return scores


def test_trec_evals_own_case_is_equal_to_its_last_digit(data: Path) -> None:
    folder = data / "retrieval" / "trec_eval"
    published = {}
    for line in (folder / "out.test.aq").read_text().splitlines():
        name, query, value = line.split()
        published[query, name] = value
    scores = scores_of(read_run(folder / "results.test"), read_judgements(folder / "qrels.test"))
    rows = {**scores.by_query, "all": scores.measures}
    ours = {(query, NAMES[name]): f"{value:.4f}" for query, row in rows.items() for name, value in row.items()}
    assert len(ours) == 4 * len(NAMES) and ours == {key: published[key] for key in ours}


@given(SCORES, RELEVANCE)
def test_measures_are_pytrec_evals(run: dict[str, float], judged: dict[str, int]) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="a check against pytrec_eval-terrier")
    names = {"map", "recip_rank", "ndcg", "ndcg_cut", "map_cut", "recall", "P"}
    expected = pytrec_eval.RelevanceEvaluator({"q": judged}, names).evaluate({"q": run}).get("q", {})
    for name, value in scores_of({"q": run}, {"q": judged}).by_query["q"].items():
        assert value == pytest.approx(expected.get(NAMES[name], 0.0), abs=1e-12), name


@given(SCORES, RELEVANCE, st.randoms())
def test_the_order_of_rows_changes_nothing(run: dict[str, float], judged: dict[str, int], random) -> None:
    shuffled = [*run.items()]
    random.shuffle(shuffled)
    assert scores_of({"q": dict(shuffled)}, {"q": judged}) == scores_of({"q": run}, {"q": judged})


@given(RELEVANCE.filter(lambda row: max(row.values()) > 0))
def test_a_perfect_ranking_scores_1(judged: dict[str, int]) -> None:
    scores = scores_of({"q": judged}, {"q": judged}, ("ndcg@3", "ndcg", "map", "mrr", "recall@12"))
    assert [*scores.measures.values()] == pytest.approx([1.0] * 5)


def test_ties_are_broken_in_float32_by_falling_id() -> None:
    ranking = RankedDocuments.of(["a", "b", "c"], [1.0, 1.0 + 1e-9, 2.0])
    assert ranking.documents == ["c", "b", "a"] and ranking.scores.dtype == np.float32


def test_a_query_without_a_ranking_scores_0_and_intervals_hold_the_mean() -> None:
    judgements = {f"q{number}": {"d": 1} for number in range(30)}
    scores = scores_of({f"q{number}": {"d": 1.0} for number in range(20)}, judgements, MEASURES)
    low, high = scores.intervals["map"]
    assert scores.measures["map"] == pytest.approx(2 / 3) and low < 2 / 3 < high
    assert scores.by_query["q29"]["mrr"] == 0
    single = scores_of({"q": {"d": 1.0}}, {"q": {"d": 1}}, ("map",))
    assert all(map(math.isnan, single.intervals["map"]))


def test_systems_are_tested_on_the_same_queries() -> None:
    judgements = {f"q{number}": {"d": 1} for number in range(40)}
    good = {query: RankedDocuments.of(["d", "e"], [2, 1]) for query in judgements}
    bad = {query: RankedDocuments.of(["d", "e"], [1, 2]) for query in judgements}
    systems = {"good": good, "bad": bad, "again": bad}
    scores, tests = score_systems(systems, judgements, [Measure.of("mrr")])
    assert [one.measures["mrr"] for one in scores] == [1, 0.5, 0.5]
    pairs = {(test.first, test.second): test for test in tests}
    better, equal = pairs["good", "bad"], pairs["bad", "again"]
    assert better.score.difference == 0.5 and better.score.interval == (0.5, 0.5)
    assert better.p_value == pytest.approx(3 * better.score.p_value) and better.p_value < 0.01
    assert equal.score.difference == 0 and equal.p_value == 1


@pytest.mark.parametrize("name", ["ndgc@10", "recall", "map@0", "ndcg@ten"])
def test_unknown_measures_are_refused(name: str) -> None:
    with refusal("invalid-value", name):
        Measure.of(name)
