"""osbert mine: negatives by ranks and margin, doubtful documents for review, as finetune reads them; bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import osbert
import terminal
from osbert.runs.similarity.retrieval import RetrievalInput
from osbert.training.progress import Progress
from osbert_lab import hard_negatives as runs
from refusals import refusal

DOCUMENTS = {
    "d0": "a good film", "d1": "the good film", "d2": "a good play", "d3": "the bad actor", "d4": "a film",
    "d5": "the good film", "d6": "good film good film", "d7": "poor plays",
    "d8": "",
}  # fmt: skip
QUERIES = {"q1": "good film", "q2": "bad actor", "q3": "poor"}
QRELS = {"q1": {"d0": 2, "d4": 1, "d2": 0}, "q2": {"d3": 1, "d8": 1}, "q3": {"d1": 0}}


def mined(out: Path, **options: Any) -> tuple[runs.MiningTally, list[dict[str, str]], list[dict[str, Any]]]:
    model = options.pop("model", None)
    tally = osbert.mine(out, corpus=DOCUMENTS, queries=QUERIES, qrels=QRELS, model=model, **options)
    rows, review = ([json.loads(line) for line in path.read_text().splitlines()] for path in (tally.path, tally.review))
    return tally, rows, review


def test_bm25_alone_ranks_without_a_model(tmp_path: Path) -> None:
    tally, rows, review = mined(tmp_path / "mined.jsonl", negatives=2)
    # d6 has both words twice: more than any that is judged; d1 and d5 are one text, and close to d0.
    assert [row["document"] for row in review] == ["good film good film"]
    assert (tally.doubtful, tally.rows, tally.path.name, tally.review.name) == (
        1,
        3,
        "mined.jsonl",
        "mined.review.jsonl",
    )
    assert [(row["query"], row["positive"]) for row in rows] == [
        ("good film", "a good film"), ("good film", "a film"), ("bad actor", "the bad actor"),
    ]  # fmt: skip
    assert rows[0]["negative_1"] == "a good play" and rows[2]["negative_1"] == ""
    assert tally.none == sum(not row["negative_1"] for row in rows) and tally.negatives == sum(
        bool(row[name]) for row in rows for name in ("negative_1", "negative_2")
    )
    # Ranks and a margin of more.
    assert all(row["negative_1"] == "" for row in mined(tmp_path / "none.jsonl", last_rank=1)[1])
    tally, rows, _ = mined(tmp_path / "wide.jsonl", margin=0.99)
    # The one that is judged not relevant needs no margin.
    assert tally.negatives == 2 and [row["negative_1"] for row in rows] == ["a good play", "a good play", ""]


def test_a_document_that_is_judged_not_relevant_is_a_negative_at_any_score(tmp_path: Path) -> None:
    judged = {**QRELS, "q1": {**QRELS["q1"], "d6": 0, "d1": 0}}
    for above, rejected in ((0.0, judged), (1.0, {"q1": {"d0": 2, "d6": 1, "d1": 1}})):
        tally = osbert.mine(
            tmp_path / "mined.jsonl", corpus=DOCUMENTS, queries=QUERIES, qrels=rejected, negatives=2, above=above
        )
        row = json.loads(tally.path.read_text().splitlines()[0])
        # d6 is above d0 and the first of equals of d1 is d5, whose text is judged.
        assert (row["positive"], row["negative_1"]) == ("a good film", "good film good film")
        assert row["negative_2"] == "the good film" and tally.doubtful == 0
        assert tally.review.read_text() == ""


def test_no_negative_is_relevant_to_another_query_of_the_same_text(tmp_path: Path) -> None:
    qrels = {"q1": {"d0": 1, "d6": 0}, "q2": {"d6": 1, "d0": 0}}
    tally = osbert.mine(
        tmp_path / "mined.jsonl", corpus=DOCUMENTS, queries={"q1": "good film", "q2": "good film"}, qrels=qrels
    )
    for row in map(json.loads, tally.path.read_text().splitlines()):
        assert not {"a good film", "good film good film"} & {row[f"negative_{number}"] for number in range(1, 6)}


def test_an_encoder_ranks_as_its_cosines(encoder: Path, tmp_path: Path) -> None:
    model = osbert.load(encoder)
    queries, documents = (model.embed([*texts.values()]) for texts in (QUERIES, DOCUMENTS))
    queries, documents = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (queries, documents))
    texts = [*DOCUMENTS.values()]
    for bm25 in (False, True):
        _, rows, review = mined(tmp_path / f"{bm25}.jsonl", model=encoder, bm25=bm25, margin=0.01, negatives=8)
        for row in rows:
            query = [*QUERIES.values()].index(row["query"])
            cosines = queries[query] @ documents.T
            own = cosines[texts.index(row["positive"])]
            alike = {""} | {DOCUMENTS[name] for name, value in QRELS[[*QUERIES][query]].items() if value > 0}
            best = max(cosines[texts.index(text)] for text in alike if text)
            chosen = {texts[i]: cosines[i] for i in np.argsort(-cosines, kind="stable") if texts[i] not in alike}
            rejected = {DOCUMENTS[name] for name, value in QRELS[[*QUERIES][query]].items() if value == 0}
            expected = [
                text
                for text, cosine in chosen.items()
                if text in rejected or (cosine <= own - 0.01 * abs(own) and cosine < best + 0.01 * abs(best))
            ]
            assert [row[f"negative_{n}"] for n in range(1, 9)] == [*expected, *[""] * (8 - len(expected))]
            doubtful = [text for text in chosen if text not in rejected and chosen[text] >= best + 0.01 * abs(best)]
            assert [line["document"] for line in review if line["query"] == row["query"]] == doubtful


@given(
    st.lists(st.floats(0.1, 1), min_size=1, max_size=4), st.lists(st.floats(-1, 1), max_size=9), st.floats(0, 0.5),
)  # fmt: skip
def test_a_negative_is_below_and_a_doubtful_document_above(
    alike: list[float], others: list[float], margin: float
) -> None:
    scores = np.array(others)
    documents = runs.ScoredDocuments(
        relevant=np.arange(len(alike)),
        relevant_scores=np.array(alike),
        others=np.arange(len(others)),
        other_scores=scores,
        rejected=np.zeros(len(others), bool),
    )
    negatives, doubtful, close = documents.choose(margin, 3)
    for own, row in zip(alike, negatives, strict=True):
        assert len(row) <= 3 and (scores[row] <= own * (1 - margin)).all() and (np.diff(scores[row]) <= 0).all()
        assert not {*row.tolist()} & {*doubtful.tolist()}
    assert all(scores[index] >= value * (1 + margin) for index in doubtful for value in alike)
    reachable = (scores <= max(alike) * (1 - margin)).sum()
    assert close + len(doubtful) + reachable >= len(others)


def test_a_table_of_pairs_is_mined_and_trained_on(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"{one} {other}" for one in ("good", "bad", "poor", "fine") for other in ("film", "actor", "play")]
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("query,positive\n" + "".join(f"{word},the {word}\n" for word in words))
    out, review = tmp_path / "mined.csv", tmp_path / "doubtful.csv"
    terminal.run("mine", "--data", pairs, "--model", encoder, "--out", out, "--review", review, "--negatives", "2")
    told = capsys.readouterr().out
    assert "12 rows with" in told and str(review) in told
    assert out.read_text().splitlines()[0] == "query,positive,negative_1,negative_2"
    run = osbert.finetune("contrastive", model=encoder, data=out, out=tmp_path / "run", epochs=1, batch=8)
    assert 'negative = "negative_1,negative_2"' in (run.folder / "recipe.toml").read_text()


def test_a_rerankers_scores_are_written_and_learnt(encoder: Path, tmp_path: Path) -> None:
    rows = [
        {"query": query, "document": text, "label": int(query in text)}
        for query in QUERIES.values()
        for text in DOCUMENTS.values()
        if text
    ]
    settings: dict[str, Any] = {"epochs": 1, "batch": 2, "precision": "fp32"}
    reranker = osbert.finetune("rerank", model=encoder, data=rows, dev=rows, out=tmp_path / "reranker", **settings)
    tally, mined_rows, _ = mined(tmp_path / "mined.csv.jsonl", negatives=2, scores=str(reranker.folder))
    assert tally.rows == 3 and [*mined_rows[0]][3:] == [
        "negative_2",
        "positive_score",
        "negative_1_score",
        "negative_2_score",
    ]
    for row in mined_rows:
        texts = {name: row[name] for name in ("positive", "negative_1", "negative_2") if row[name]}
        assert all((row[f"{name}_score"] == "") == (name not in texts) for name in ("negative_1", "negative_2"))
        [ranking] = reranker.predict([(row["query"], *texts.values())])
        assert [row[f"{name}_score"] for name in texts] == pytest.approx(ranking.value, abs=1e-5)
    # Its scores hardly differ: learn clearer ones.
    names = [name for name in mined_rows[0] if name.endswith("_score")]
    taught = [
        {**row, **{name: 2.0 * (name == "positive_score") for name in names if row[name] != ""}} for row in mined_rows
    ]
    for distillation in ("kl", "margin_mse"):
        out, events = tmp_path / distillation, []
        run = osbert.finetune(
            "contrastive", model=encoder, data={"train": taught * 4, "dev": taught}, out=out, watch=events.append,
            distillation=distillation, **{**settings, "epochs": 8, "learning_rate": 3e-3},
        )  # fmt: skip
        losses = [event.loss for event in events if isinstance(event, Progress)]
        assert sum(losses[-6:]) < sum(losses[:6]) and 'rows = "distilled"' in (run.folder / "recipe.toml").read_text()
    with refusal("unsupported-model", "--scores"):
        mined(tmp_path / "no.jsonl", scores=str(encoder))


def test_pairs_are_mined_in_a_larger_corpus(tmp_path: Path) -> None:
    pairs = [
        {"query": "good film", "positive": "a good film"},
        {"query": "bad actor", "positive": "bad bad actor actor"},
    ]
    given = RetrievalInput(data=pairs, corpus=DOCUMENTS)
    tally = runs.mine_negatives(given, out=tmp_path / "mined.jsonl", options=runs.MiningOptions(negatives=3))
    rows = [json.loads(line) for line in tally.path.read_text().splitlines()]
    assert [(row["query"], row["positive"]) for row in rows] == [
        ("good film", "a good film"),
        ("bad actor", "bad bad actor actor"),
    ]
    negatives = {row["query"]: {row[f"negative_{number}"] for number in (1, 2, 3)} - {""} for row in rows}
    assert negatives["good film"] <= {*DOCUMENTS.values()} - {"a good film"} and negatives["good film"]
    assert "the bad actor" in negatives["bad actor"]


def test_a_larger_corpus_measures_pairs(tmp_path: Path) -> None:
    pairs = [{"query": "bad actor", "document": "the bad actor", "label": 1}]
    found = osbert.evaluate_retrieval(data=pairs, corpus=DOCUMENTS, measures="mrr", run=tmp_path / "bm25.trec")
    assert found.measures["mrr"] == 1
    assert (tmp_path / "bm25.trec").read_text().split()[2] == "d3"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"first_rank": 5, "last_rank": 2}, "invalid-value"),
        ({"negatives": 0}, "invalid-value"),
        ({"margin": 1.0}, "invalid-value"),
        ({"bm25": False}, "missing-option"),
        ({"above": 9.0}, "no-data"),
    ],
)
def test_what_cannot_be_mined_is_refused(tmp_path: Path, options: dict[str, Any], code: str) -> None:
    with refusal(code):
        mined(tmp_path / "mined.jsonl", **options)
    assert not [*tmp_path.iterdir()]


def test_documents_that_are_lists_are_refused(tmp_path: Path) -> None:
    rows = [{"query": "good film", "positive": ["a good film", "the film"]}]
    with refusal("unusable-row", "row 1: 'positive' is a list or an object"):
        osbert.mine(tmp_path / "mined.jsonl", data=rows)
