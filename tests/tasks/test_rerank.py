"""rerank: its files in each form, what is learnt from and what is scored, its measures, and files of plain input."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from osbert.data.batch import collate
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.reading.memory import tables
from osbert.tasks import Record, findings, load, with_data
from osbert.tasks.kinds.contrastive import Contrastive
from osbert.tasks.kinds.rerank import Rerank, select_candidates
from osbert.tasks.kinds.rerank.rankings import QueryCandidates, ranking
from osbert.tasks.ranking_measures import average_precision, ndcg, reciprocal_rank
from osbert.tasks.tables import note_long
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

PACKER = Packer(tokenizer=Tokenizer([*SPECIALS, "a", "b", "c", "d", "q"]), length=12)
QUERIES = {"q a": {"a": 1.0, "b": 0.0, "c c": 0.0}, "q b": {"b": 1.0, "c": 0.0}, "q c": {"c": 1.0, "a": 0.0}}
"""Relevance by query and document."""
LISTS = st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3)), min_size=1, max_size=5)
"""Scores and relevance of a query's candidates, with ties."""


def columns_of(rows: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    scores, relevance = np.array(rows, np.float64).T
    return scores, relevance


def pairs(**named: str) -> list[dict[str, Any]]:
    names = {"query": "query", "document": "document", "label": "label"} | named
    return [
        {names["query"]: query, names["document"]: text, names["label"]: label}
        for query, documents in QUERIES.items()
        for text, label in documents.items()
    ]


def in_form(form: str, folder: Path) -> Any:
    """Return the queries in one of the forms that are read."""
    if form == "csv":
        with (folder / "pairs.csv").open("w") as file:
            writer = csv.DictWriter(file, ["query", "passage", "relevance"])
            writer.writeheader()
            writer.writerows(pairs(document="passage", label="relevance"))
        return folder / "pairs.csv"
    if form == "lists":
        return [
            {"query": query, "candidates": [*documents], "relevance": [*documents.values()]}
            for query, documents in QUERIES.items()
        ]
    split = {
        query: [[text for text, label in documents.items() if (label > 0) == relevant] for relevant in (True, False)]
        for query, documents in QUERIES.items()
    }
    if form == "positives":
        path = folder / "hard.jsonl"
        rows = [{"query": query, "pos": pos, "neg": neg} for query, (pos, neg) in split.items()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    if form == "triples":  # MS MARCO's: no header, a row for each pair of a relevant and another one
        rows = [f"{query}\t{pos[0]}\t{other}\n" for query, (pos, neg) in split.items() for other in neg]
        (folder / "triples.tsv").write_text("".join(rows))
        return folder / "triples.tsv"
    return pairs() if form == "rows" else [(row["query"], row["document"], row["label"]) for row in pairs()]


@pytest.mark.parametrize("form", ["csv", "rows", "tuples", "lists", "positives", "triples"])
def test_every_form_gives_the_same_queries(form: str, tmp_path: Path) -> None:
    named = {"query": "column 1", "positive": "column 2", "negative": ("column 3",)} if form == "triples" else {}
    task = with_data(Rerank(**named, header="no" if form == "triples" else "auto"), in_form(form, tmp_path))
    task, records = load(task.source.resolve(), ("train", "dev"))
    both = [*records["train"], *records["dev"]]
    found = {record.texts[0]: dict(zip(record.texts[1:], record.label, strict=True)) for record in both}
    assert found == QUERIES and len(records["dev"]) == 1
    assert task.description.describe_split(both) == "3 queries with 7 candidates"
    assert any("10% of the training queries, drawn at random" in line for line in findings(task))


def test_problems_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("query,document,label\nq,a,high\nq,b,-1\nq,c,nan\nq,d,0\nq,d,1\nr,a,\n")
    with refusal("unusable-row", "line 2", "'high'", "line 3", "'-1'", "line 4", "'nan'", "line 6", "line 5", "line 7"):
        load(with_data(Rerank(), path), ("train",))
    rows = [
        {"query": "q", "documents": ["a", "b"], "labels": [1]},
        {"query": "q", "documents": ["a", " "], "labels": [1, 0]},
    ]
    with refusal("unusable-row", "row 1", "2 documents", "1 values", "row 2", "document 2 of 2"):
        load(with_data(Rerank(), rows), ("train",))
    with refusal("nothing-to-learn", "1 queries"):
        load(with_data(Rerank(loss="bce"), [("q", "a", 1), ("r", "b", 0)]), ("train",))
    for columns, name in ((("a", "document", "label"), "query"), (("query", "a", "label"), "document"),
                          (("query", "document", "a"), "label")):  # fmt: skip
        with refusal("unknown-column", name):
            load(with_data(Rerank(), [dict(zip(columns, ("x", "y", 1)))]), ("train",))


def test_the_form_of_a_table_is_never_guessed() -> None:
    row = {"query": "q", "document": "a", "label": 0, "positive": 1}
    rows = [row, row | {"document": "b", "label": 1, "positive": 0}]
    with refusal("ambiguous-column", "'document'", "'positive'", "--document", "--positive"):
        load(with_data(Rerank(), rows), ("train",))
    for settings in ({"document": "document"}, {"label": "label"}):
        task = with_data(Rerank(**settings), rows).source.resolve()
        assert isinstance(task, Rerank) and (task.document, task.label, task.positive) == ("document", "label", "")
        (record,) = load(task, ("train",))[1]["train"]
        assert record.label == (0.0, 1.0)
    task = with_data(Rerank(positive="positive"), rows).source.resolve()
    assert isinstance(task, Rerank) and (task.document, task.label, task.positive) == ("", "", "positive")
    triples = [{"query": "q", "positive": "a", "negative": "b", "grade": 1}]
    for settings in ({"label": "grade"}, {"label": "grade", "positive": "positive"}):
        with refusal("options-exclude-each-other", "grade", "positive"):
            with_data(Rerank(**settings), triples).source.resolve()


def test_negatives_need_relevant_documents() -> None:
    rows = [{"query": "q", "document": "a", "label": 1, "wrong": "b"}]
    with refusal("unknown-column", "'wrong'", "--negative", "--positive"):
        with_data(Rerank(negative=("wrong",)), rows).source.resolve()


def test_a_trained_run_reads_data_of_the_other_form() -> None:
    triples = [{"query": "q", "positive": "a", "negative": "b", "label": 1}]
    both = [{"query": "q", "document": "a", "label": 1, "positive": "c", "negative": "b"}]
    trained = with_data(Rerank(), pairs()).source.resolve()
    other = with_data(Rerank(), [{"query": "q", "positive": "a", "negative": "b"}]).source.resolve()
    for task, data, named, texts in (
        (trained, triples, {}, ("q", "a", "b")),
        (trained, both, {}, ("q", "a")),
        (trained, both, {"positive": "positive"}, ("q", "c", "b")),
        (other, both, {}, ("q", "c", "b")),
        (other, [{"query": "q", "document": "a", "label": 1, "negative": "b"}], {}, ("q", "a")),
        (other, both, {"document": "document"}, ("q", "a")),
    ):
        moved = task.source.switch_data(tables(data), named)
        (record,) = moved.source.read(moved.source.alone, Problems(heading=""), labelled=True)
        assert record.texts == texts


def test_graded_relevance_and_booleans_are_numbers() -> None:
    rows = [("q", "a", 3), ("q", "b", True), ("q", "c", 0.5), ("q", "d", False)]
    task, records = load(with_data(Rerank(), rows), ("train",))
    (record,) = [*records["train"]]
    assert record.label == (3.0, 1.0, 0.5, 0.0) and task.highest == 3


def test_lists_are_cut_to_what_is_compared_and_targets_are_shares() -> None:
    task = Rerank(candidates=3)
    record = QueryCandidates(number=0, texts=("q", "a", "b", "c", "d"), label=(0.0, 0.0, 1.0, 2.0))
    made = task.encode(record, PACKER)
    assert [float(one.targets["rerank"].labels[0]) for one in made] == [0.0, 0.0, 1.0]  # a, b and the best, d
    assert [float(one.targets["rerank"].weights[0]) for one in made] == [1.0, 0.0, 0.0]  # type: ignore[index]
    assert len(task.encode(QueryCandidates(number=0, texts=record.texts), PACKER)) == 4
    bce = Rerank(loss="bce", highest=2.0).encode(record, PACKER)
    assert [float(one.targets["rerank"].labels[0]) for one in bce] == [0.0, 0.0, 0.5, 1.0]
    assert select_candidates(np.array([1.0, 1, 1, 0]), 3).tolist() == [0, 1, 3]
    assert select_candidates(np.array([1.0, 2, 3]), 2).tolist() == [0, 2]


def test_what_is_learnt_from_a_long_list_still_teaches() -> None:
    labels = np.array([2.0] * 18 + [1.0] * 5)
    assert np.bincount(labels[select_candidates(labels, 16)].astype(int)).tolist() == [0, 5, 11]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12), st.integers(2, 6))
def test_a_cut_list_has_two_degrees_where_the_whole_has(grades: list[int], most: int) -> None:
    labels = np.array(grades, np.float64)
    kept = labels[select_candidates(labels, most)]
    assert len(kept) == min(most, len(labels))
    assert (kept.min() < kept.max()) == (labels.min() < labels.max())


@pytest.mark.parametrize("loss", ["softmax", "bce"])
def test_the_loss_is_that_of_its_definition(loss: Any) -> None:
    task = Rerank(loss=loss, highest=2.0)
    labels = [(1.0, 0.0), (0.0, 1.0, 2.0)]
    texts = [("q", "a", "b"), ("q", "c", "d", "a b")]
    records = [QueryCandidates(number=n, texts=t, label=label) for n, (t, label) in enumerate(zip(texts, labels))]
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=16, vocabulary=20, length=12).build()
    learner = Learner(backbone, {"rerank": task.head(backbone)}).eval()
    torch.nn.init.normal_(learner.heads["rerank"].linear.weight)  # type: ignore[union-attr,arg-type]
    examples = [one for record in records for one in task.encode(record, PACKER)]
    batch = collate(examples)
    scores = learner.heads["rerank"].outputs(learner.states(batch), batch)[:, 0].tolist()  # type: ignore[union-attr,operator]
    expected = 0.0
    for record in records:
        own = [score for score, number in zip(scores, batch.records.tolist()) if number == record.number]
        places = [
            float(t)
            for t, number in zip(batch.targets["rerank"].labels, batch.records.tolist())
            if number == record.number
        ]
        if loss == "softmax":
            total = math.log(sum(math.exp(score) for score in own))
            expected += sum(share * (total - score) for share, score in zip(places, own))
        else:
            chances = [1 / (1 + math.exp(-score)) for score in own]
            expected -= sum(y * math.log(p) + (1 - y) * math.log(1 - p) for y, p in zip(places, chances))
    found = learner(batch)["rerank"]
    assert found.total.item() == pytest.approx(expected, rel=1e-5)
    assert found.count == (2 if loss == "softmax" else 5)


@given(LISTS, st.integers(1, 6))
def test_ndcg_is_scikit_learns(rows: list[tuple[int, int]], cutoff: int) -> None:
    scores, relevance = columns_of(rows)
    if len(rows) > 1:
        assert ndcg(scores, relevance, cutoff) == pytest.approx(ndcg_score([relevance], [scores], k=cutoff))
    assert ndcg(relevance, relevance, cutoff) == pytest.approx(float(relevance.max() > 0))


@given(LISTS, st.integers(1, 6))
def test_measures_are_means_over_the_orders_of_ties(rows: list[tuple[int, int]], cutoff: int) -> None:
    scores, relevance = columns_of(rows)
    orders = [order for order in permutations(range(len(rows))) if all(np.diff(scores[[*order]]) <= 0)]
    ranks = [next((rank for rank, one in enumerate(order, 1) if relevance[one] > 0), math.inf) for order in orders]
    reciprocal = np.mean([1 / rank if rank <= cutoff else 0.0 for rank in ranks])
    assert reciprocal_rank(scores, relevance, cutoff) == pytest.approx(reciprocal)
    if relevance.max() > 0:
        precise = np.mean(
            [average_precision_score(relevance > 0, -np.argsort(order).astype(float)) for order in orders]
        )
        assert average_precision(scores, relevance) == pytest.approx(precise)


def test_long_ties_do_not_overflow() -> None:
    scores, relevance = np.zeros(5000), np.arange(5000) % 2.0
    assert reciprocal_rank(scores, relevance, 10) == pytest.approx(
        sum(0.5**rank / rank for rank in range(1, 11)), rel=1e-3
    )


def test_queries_without_a_relevant_candidate_are_left_out_and_counted() -> None:
    task = Rerank()
    records: list[Record] = [
        QueryCandidates(number=0, texts=("q", "a", "b"), label=(0.0, 1.0)),
        QueryCandidates(number=1, texts=("q", "a", "b"), label=(0.0, 0.0)),
    ]
    said = [ranking([0.0, 1.0], ["a", "b"], [0, 0])] * 2
    assert task.metrics(said, records) == {"ndcg@10": 1.0, "mrr@10": 1.0, "map": 1.0}
    assert task.description.details(said, records)[1] == ["1", "1"]
    assert [task.outcome(one, record).error for one, record in zip(said, records)] == [0.0, 0.0]
    assert task.description.describe_split(records).startswith("2 queries with 4 candidates; 1 without")
    assert [bool(task.lacks(record)) for record in records] == [False, True]
    assert not any(Rerank(loss="bce").lacks(record) for record in records)


def test_queries_with_relevant_candidates_alone_are_counted() -> None:
    records: list[Record] = [QueryCandidates(number=0, texts=("q", "a", "b"), label=(1.0, 5.0))]
    said = [ranking([1.0, 0.0], ["a", "b"], [0, 0])]
    scores = Rerank().metrics(said, records)
    assert scores["ndcg@10"] < scores["mrr@10"] == scores["map"] == 1
    assert "1 queries whose candidates are all relevant" in Rerank().description.describe_split(records)
    assert Rerank().description.details(said, records)[1] == ["1", "0", "1"]


def test_the_query_is_whole_while_it_has_half_of_the_room() -> None:
    task = Rerank()
    (one, other) = task.encode(QueryCandidates(number=0, texts=("q q", "a " * 30, "a")), PACKER)
    assert [len(one), one.truncated, len(other), other.truncated] == [12, 30 - 7, 6, 0]
    with refusal("text-too-long", "23"):
        problems = Problems(heading="long")
        note_long(Rerank(long="error"), [QueryCandidates(number=0, texts=("q q", "a " * 30))], PACKER, problems)
        problems.stop_if_any()


def test_a_ranking_keeps_the_order_of_equal_scores() -> None:
    said = ranking([0.5, 2.0, 0.5], ["a", "b", "c"], [0, 0, 3])
    assert [one.index for one in said.ranked] == [1, 0, 2] and said.truncated == 3
    assert said.value == (0.5, 2.0, 0.5)
    assert [row["document"] for row in said.as_dict()["prediction"]] == ["b", "a", "c"]
    assert said.ranked[0].probability == pytest.approx(1 / (1 + math.exp(-2)))


def test_rows_of_a_query_are_ranked_together_and_written_apart(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("query,document\nq,a\nq,b\nr,a\n,\nr,d\n")
    inputs = Rerank().source.switch_data(path, {}).source.inputs(path)
    problems = Problems(heading="")
    rows = [*inputs.rows(problems)]
    assert not problems.count
    texts = [record.texts for _, record in rows if record]
    assert texts == [("q", "a", "b"), ("r", "a", "d")]
    task = Rerank()
    said = [ranking([0.0, 1.0], text[1:], [0, 2]) for text in texts]
    parts = [part for (row, _), one in zip(rows, said) for part in inputs.parts(row, one)]
    assert [row.line for row, _ in parts] == [2, 3, 4, 5, 6]
    assert [task.cells(one)["rank"] for _, one in parts] == [2, 1, 2, "", 1]
    assert [task.cells(one)["truncated"] for _, one in parts] == [0, 2, 0, "", 2]
    path.write_text("query,document\nq,a\nr,b\nq,c\n")
    with refusal("unusable-row", "line 4", "line 2"):
        problems = Problems(heading="apart")
        [*Rerank().source.inputs(path).rows(problems)]
        problems.stop_if_any()


def test_lists_of_a_file_are_ranked_and_written_as_lists(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text(json.dumps({"query": "q", "documents": ["a", "b"]}) + "\n")
    inputs = Rerank().source.inputs(path)
    ((row, record),) = inputs.rows(Problems(heading=""))
    assert record is not None and record.texts == ("q", "a", "b") and inputs.lines
    ((_, said),) = inputs.parts(row, ranking([0.0, 1.0], ["a", "b"], [0, 0]))
    assert Rerank().cells(said)["rank"] == [2, 1]
    assert said is not None and [one["index"] for one in said.as_dict()["prediction"]] == [1, 0]


@pytest.mark.parametrize("wrong", [{"candidates": 1}, {"cutoff": 0}, {"long": "window"}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rerank(**wrong)


def test_an_empty_cell_of_a_column_of_negatives_is_no_document(tmp_path: Path) -> None:
    path = tmp_path / "mined.csv"
    path.write_text("query,positive,negative_1,negative_2\na,b,,\na,c,d,\ne,f,g,h\n")
    task = Rerank(data=str(path)).source.resolve()
    problems = Problems(heading="wrong")
    records = [(record.texts, record.label) for record in task.source.records("all", problems)]
    problems.stop_if_any()
    assert records == [(("a", "b", "c", "d"), (1, 1, 0)), (("e", "f", "g", "h"), (1, 0, 0))]


@pytest.mark.parametrize("kind", [Rerank, Contrastive])
def test_lists_in_the_cells_of_a_csv_file_are_lists(tmp_path: Path, kind: type[Rerank | Contrastive]) -> None:
    lists = {"positive": ["a", "b, c"], "negative": ["d", "it's"]}
    rows = [{"query": f"q{number}", **lists} for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    forms = {"json": json.dumps, "python": str, "numpy": lambda texts: str(np.array(texts, dtype=object))}
    files = {name: tmp_path / f"{name}.csv" for name in forms}
    for name, spell in forms.items():
        with files[name].open("w", newline="") as file:
            cells = ([row["query"], *map(spell, lists.values())] for row in rows)  # type: ignore[operator]
            csv.writer(file).writerows([["query", "positive", "negative"], *cells])
    found = []
    for path in (tmp_path / "rows.jsonl", *files.values()):
        _, records = load(kind(data=str(path)).source.resolve(), ("train", "dev"))
        found.append([(record.texts, record.label) for split in records.values() for record in split])
    assert len({len(texts) for texts, _ in found[0]}) == 1 and found == found[:1] * 4
