"""osbert evaluate and compare retrieval: the forms of data, runs for other tools, bad input; the same from Python."""

from __future__ import annotations

import csv
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import osbert
import terminal
from osbert.errors import UserError
from osbert.inference.engine import load
from osbert.interop.sentence_files import PROMPTS
from osbert.reading.retrieval import read_judgements, read_run
from osbert.runs.similarity import retrieval as runs
from refusals import refusal, refused
from tiny_runs import write_sentences

CORPUS = {
    "d1": {"title": "film", "text": "a good film"},
    "d2": {"title": "play", "text": "the bad play"},
    "d3": {"title": "", "text": "the good actor"},
    "d4": {"title": "Ärger", "text": "poor Ärger"},
}
QUERIES = {"q1": "good film", "q2": "bad play", "q3": "poor"}
QRELS = {"q1": {"d1": 2, "d3": 1, "d2": 0}, "q2": {"d2": 1}, "q3": {"d4": 1}}


def lines(rows: dict[str, Any]) -> str:
    objects = ({"_id": key, **(value if isinstance(value, dict) else {"text": value})} for key, value in rows.items())
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in objects)


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """Return a folder with BEIR's three files, the corpus compressed."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    with lzma.open(folder / "corpus.jsonl.xz", "wt", encoding="utf-8") as file:
        file.write(lines(CORPUS))
    (folder / "queries.jsonl").write_text(lines(QUERIES))
    rows = [f"{query}\t{document}\t{value}\n" for query, row in QRELS.items() for document, value in row.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


def words(beir: Path) -> list[str]:
    files = {"corpus": "corpus.jsonl.xz", "queries": "queries.jsonl", "qrels": "qrels/test.tsv"}
    return [word for name, file in files.items() for word in (f"--{name}", str(beir / file))]


def test_an_encoder_is_measured_beside_bm25(
    encoder: Path, beir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "out.trec", tmp_path / "scores.csv"
    command = ("evaluate", "retrieval", "--model", encoder, *words(beir), "--run", run, "--out", out)
    done = terminal.told(capsys, *command, "--json")
    assert done.status == 0, done.error
    result = json.loads(done.output.splitlines()[-1])
    assert (result["queries"], result["documents"], result["criterion"]) == (3, 4, "ndcg@10")
    assert [system["name"] for system in result["systems"]] == [encoder.name, "bm25"]
    found = osbert.evaluate_retrieval(encoder, corpus=CORPUS, queries=QUERIES, qrels=QRELS)
    assert {"event": "result", **found.to_dict()} == result
    # The ranking is that of a plain comparison of all vectors; the title stands before the text.
    texts = [f"{row['title']} {row['text']}".strip() for row in CORPUS.values()]
    model = load(encoder)
    documents, queries = model.embed(texts), model.embed([*QUERIES.values()])
    cosines = (queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ (
        documents / np.linalg.norm(documents, axis=1, keepdims=True)
    ).T
    ranked = read_run(run)
    for row, query in zip(cosines, QUERIES):
        assert [*ranked[query]] == [[*CORPUS][index] for index in np.argsort(-row)]
        assert [*ranked[query].values()] == pytest.approx(np.sort(row)[::-1], abs=1e-5)
    rows = [*csv.DictReader(out.read_text().splitlines())]
    assert len(rows) == 6 and float(rows[0]["ndcg@10"]) == found.by_query["q1"]["ndcg@10"]
    people = terminal.told(capsys, *command[:-4])
    assert f"{found.measures['ndcg@10']:.4f}" in people.output and "bm25" in people.output


def test_queries_and_documents_get_the_prompts_of_their_roles(tmp_path: Path) -> None:
    model = write_sentences(tmp_path / "model")
    prompts = {"prompts": {"query": "good ", "document": "the bad ", "other": "film "}}
    (model / PROMPTS).write_text(json.dumps(prompts))
    engine, run = load(model), tmp_path / "run.trec"
    for role in (None, "other"):
        options: dict[str, Any] = {} if role is None else {"role": role}
        osbert.evaluate_retrieval(model, corpus=CORPUS, queries=QUERIES, qrels=QRELS, run=run, bm25=False, **options)
        texts = [f"{row['title']} {row['text']}".strip() for row in CORPUS.values()]
        sides = engine.embed([*QUERIES.values()], role=role or "query"), engine.embed(texts, role="document")
        queries, documents = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in sides)
        for query, row in zip(QUERIES, queries @ documents.T):
            scores = read_run(run)[query]
            assert [scores[name] for name in CORPUS] == pytest.approx(row.tolist(), abs=1e-5)


def test_a_run_that_is_written_scores_the_same_when_it_is_read(
    encoder: Path, beir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "mine.trec"
    written = osbert.evaluate_retrieval(encoder, corpus=CORPUS, queries=QUERIES, qrels=QRELS, run=run, bm25=False)
    read = osbert.evaluate_retrieval(results=[run], qrels=beir / "qrels" / "test.tsv")
    assert read.by_query == written.by_query and read.documents is None
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="a check against pytrec_eval-terrier")
    with run.open() as file:
        others = pytrec_eval.RelevanceEvaluator(QRELS, {"map"}).evaluate(pytrec_eval.parse_run(file))
    assert {query: row["map"] for query, row in others.items()} == {
        query: pytest.approx(row["map"]) for query, row in read.by_query.items()
    }


@pytest.mark.parametrize("form", ["gz", "utf-16", "latin-1", "csv", "frames", "trec"])
def test_every_form_of_the_data_gives_the_same_scores(beir: Path, tmp_path: Path, form: str) -> None:
    expected = osbert.evaluate_retrieval(corpus=CORPUS, queries=QUERIES, qrels=QRELS).to_dict()
    corpus: Any = tmp_path / "corpus.jsonl"
    qrels: Any = beir / "qrels" / "test.tsv"
    frame = pd.DataFrame([{"_id": key, **row} for key, row in CORPUS.items()])
    options = {"encoding": form} if form == "latin-1" else {}
    if form == "gz":
        corpus = tmp_path / "corpus.csv.gz"
        frame.to_csv(corpus, index=False)
    elif form in ("utf-16", "latin-1"):
        corpus.write_text(lines(CORPUS), encoding=form)
    elif form == "csv":
        corpus, qrels = tmp_path / "corpus.csv", tmp_path / "qrels.csv"
        frame.to_csv(corpus, index=False)
        rows = [(query, name, value) for query, row in QRELS.items() for name, value in row.items()]
        pd.DataFrame(rows, columns=["query-id", "corpus-id", "score"]).to_csv(qrels, index=False)
    else:
        corpus = frame
        qrels = tmp_path / "qrels.txt"
        qrels.write_text("".join(f"{q} 0 {name} {value}\n" for q, row in QRELS.items() for name, value in row.items()))
    found = osbert.evaluate_retrieval(corpus=corpus, queries=beir / "queries.jsonl", qrels=qrels, **options)
    assert found.to_dict() == expected


def test_one_table_of_queries_documents_and_labels(tmp_path: Path) -> None:
    table = [("good film", "a good film", 1), ("good film", "the bad play", 0), ("play", "the bad play", 1)]
    path = tmp_path / "table.csv"
    pd.DataFrame(table, columns=["query", "document", "label"]).to_csv(path, index=False)
    found = osbert.evaluate_retrieval(data=path)
    assert (found.queries, found.documents) == (2, 2) and found.measures["mrr"] == 1


@given(st.permutations([*CORPUS.items()]), st.permutations([*QUERIES.items()]), st.integers(1, 3))
def test_the_order_of_the_rows_changes_nothing(corpus: list[Any], queries: list[Any], depth: int) -> None:
    options: dict[str, Any] = {"qrels": QRELS, "depth": depth, "measures": "ndcg@1,map"}
    found = osbert.evaluate_retrieval(corpus=dict(corpus), queries=dict(queries), **options)
    assert found.by_query == osbert.evaluate_retrieval(corpus=CORPUS, queries=QUERIES, **options).by_query


def test_equal_vectors_are_ranked_by_falling_id_whatever_the_depth(encoder: Path, monkeypatch) -> None:
    monkeypatch.setattr(runs, "WINDOW", 2)
    monkeypatch.setattr(runs, "QUERIES", 1)
    corpus = dict.fromkeys(("b", "d", "a", "c"), "a good film")
    for name in corpus:
        found = osbert.evaluate_retrieval(
            encoder, corpus=corpus, queries={"q": "film", "r": "bad"}, qrels={"q": {name: 1}, "r": {"a": 1}}, depth=2,
            measures="mrr", bm25=False,
        )  # fmt: skip
        assert found.by_query["q"]["mrr"] == {"d": 1, "c": 0.5}.get(name, 0)


def test_queries_without_judgements_are_reported_and_not_scored(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Any] = []
    more = {**QUERIES, "q9": "an unjudged query"}
    found = osbert.evaluate_retrieval(corpus=CORPUS, queries=more, qrels=QRELS, watch=events.append)
    assert found.queries == 3 and any("q9" in str(event) for event in events)
    assert found.by_query == osbert.evaluate_retrieval(corpus=CORPUS, queries=QUERIES, qrels=QRELS).by_query


def test_unknown_ids_in_judgements_are_listed_and_counted(beir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (beir / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\tgone1\t1\nq1\tgone2\t1\nq7\td1\t1\n")
    refused(terminal.told(capsys, "evaluate", "retrieval", *words(beir)), "unknown-id", "2 documents", "gone2", "q7")
    done = terminal.told(capsys, "evaluate", "retrieval", *words(beir), "--allow-unknown", "--json")
    result = json.loads(done.output.splitlines()[-1])
    # A document that is not there counts as not retrieved.
    assert result["systems"][0]["by_query"]["q1"]["recall@10"] == 0.5 and result["queries"] == 3


@pytest.mark.parametrize(
    ("change", "code", "values"),
    [
        ({"corpus": {}}, "no-data", ["corpus"]),
        ({"queries": {}}, "no-data", ["queries"]),
        ({"qrels": {}}, "no-data", []),
        ({"corpus": [{"_id": "d1", "text": "a"}, {"_id": "d1", "text": "b"}]}, "duplicate-name", ["d1", "row 2"]),
        ({"corpus": [{"_id": "", "text": "a"}]}, "unusable-row", ["row 1"]),
        ({"corpus": [{"_id": "d1", "title": "a", "text": ["b"]}]}, "unusable-row", ["row 1", "'text'"]),
        ({"corpus": [{"_id": "d1", "title": {"en": "a"}, "text": "b"}]}, "unusable-row", ["row 1", "'title'"]),
        ({"corpus": [{"name": "d1", "text": "a"}]}, "unknown-column", ["_id"]),
        ({"queries": {"q1": " "}}, "empty-text", ["row 1"]),
        ({"qrels": [{"query-id": "q1", "corpus-id": "d1", "score": "high"}]}, "unusable-row", ["high"]),
        ({"qrels": {"q1": {"d1": 1}, 1: {1: 1, "1": 0}}}, "duplicate-name", ["1"]),
        ({"qrels": {1: {"d1": 1}, "1": {"d1": 0}}}, "duplicate-name", ["1", "d1"]),
        ({"qrels": {"q8": {"d1": 1}}, "allow_unknown": True}, "no-data", []),
        ({"measures": "ndcg@2000"}, "invalid-value", ["ndcg@2000", "1000"]),
        ({"measures": "good@3,map"}, "invalid-value", ["good@3"]),
        ({"depth": 0}, "invalid-value", ["depth"]),
        ({"bm25": False}, "missing-option", []),
        ({"queries": None}, "missing-option", ["queries"]),
        ({"data": "table.csv"}, "options-exclude-each-other", ["data"]),
        ({"results": {"bm25": {"q1": {"d1": 1.0}}}}, "duplicate-name", ["bm25"]),
        ({"pooling": "tokens"}, "invalid-value", ["tokens"]),
    ],
)
def test_bad_input_is_refused_before_the_work(change: dict[str, Any], code: str, values: list[str]) -> None:
    with refusal(code, *values):
        osbert.evaluate_retrieval(**{"corpus": CORPUS, "queries": QUERIES, "qrels": QRELS, **change})


def test_ids_with_spaces_are_refused_for_a_run_alone(tmp_path: Path) -> None:
    data: dict[str, Any] = {"corpus": {"a b": "film"}, "queries": {"q": "film"}, "qrels": {"q": {"a b": 1}}}
    assert osbert.evaluate_retrieval(**data).measures["mrr"] == 1
    with refusal("invalid-value", "a b"):
        osbert.evaluate_retrieval(**data, run=tmp_path / "run.trec")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("line", ["q1 Q0 d1 1 x tag", "q1 d1 1.0", "q1 Q0 d1 1 0.5 tag\nq1 Q0 d1 2 0.4 tag"])
def test_damaged_runs_are_refused_with_their_line(beir: Path, tmp_path: Path, line: str) -> None:
    path = tmp_path / "run.trec"
    path.write_text(f"{line}\n")
    with refusal("duplicate-name" if "\n" in line else "wrong-format", f"line {1 + line.count(chr(10))}"):
        osbert.evaluate_retrieval(results=[path], qrels=beir / "qrels" / "test.tsv")


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_first_judgement_with_the_name_of_a_column_is_no_header(tmp_path: Path, ends: str) -> None:
    for name, lines in (
        ("a.trec", ["query 0 id 1", "q 0 d 0"]),
        ("b.tsv", ["query-id\tcorpus-id\tscore", "query\tid\t1"]),
    ):
        (tmp_path / name).write_text(ends.join([*lines, ""]), newline="")
        found = osbert.evaluate_retrieval(
            qrels=tmp_path / name, results={"run": {"query": {"id": 1.0}, "q": {"d": 1.0}}}, measures="mrr"
        )
        assert found.by_query["query"]["mrr"] == 1


def test_an_interrupted_run_leaves_nothing_behind(encoder: Path, tmp_path: Path) -> None:
    def stop(event: Any) -> None:
        if isinstance(event, runs.RetrievalProgress):
            raise KeyboardInterrupt

    outputs = {"run": tmp_path / "a.trec"}
    with pytest.raises(KeyboardInterrupt):
        osbert.evaluate_retrieval(encoder, corpus=CORPUS, queries=QUERIES, qrels=QRELS, **outputs, watch=stop)
    assert not [*tmp_path.iterdir()]
    assert osbert.evaluate_retrieval(encoder, corpus=CORPUS, queries=QUERIES, qrels=QRELS, **outputs).queries == 3


def test_runs_are_compared_by_query(beir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    qrels = beir / "qrels" / "test.tsv"
    for name, documents in (("good", ["d1", "d2", "d4"]), ("bad", ["d4", "d1", "d2"])):
        rows = (f"{query} Q0 {document} 1 1 x\n" for query, document in zip(QUERIES, documents, strict=True))
        (tmp_path / f"{name}.trec").write_text("".join(rows))
    command = ("compare", "retrieval", tmp_path / "good.trec", tmp_path / "bad.trec", "--qrels", qrels)
    done = terminal.told(capsys, *command, "--measures", "mrr,map", "--json")
    [test] = json.loads(done.output.splitlines()[-1])["tests"]
    assert test["score"]["difference"] == 1 and test["p_value"] == 0.25  # 2 of the 2^3 signs of three queries
    assert (test["first"], test["second"]) == ("good.trec", "bad.trec")
    assert "p = " in terminal.told(capsys, *command).output
    refused(terminal.told(capsys, *command[:3], "--qrels", qrels), "missing-value", "compare retrieval")


def test_data_in_memory_are_read_and_checked_as_files_are() -> None:
    qrels = {1: {2: 1, 3: 0}}
    scored = osbert.evaluate_retrieval(qrels=qrels, results={"a": {1: {2: 0.9, 3: 0.5}}}, measures="mrr")
    assert scored.systems[0].measures["mrr"] == 1
    for results in (
        {"a": {1: {2: float("nan"), 3: 0.5}}},
        {"a": {1: {2: 3.41e38, 3: 3.42e38}}},
        {"a": {1: {2: "x"}}},
        {"a": {1: [2]}},
        {"a": {1: 0.4}},
    ):
        with pytest.raises(UserError) as error:
            osbert.evaluate_retrieval(qrels=qrels, results=results)
        assert error.value.code == "unusable-row"
    for wrong, code in (({}, "no-data"), ({"q": ["d"]}, "unusable-row"), ({"q": {"d": float("inf")}}, "unusable-row")):
        with pytest.raises(UserError) as error:
            osbert.evaluate_retrieval(qrels=wrong, results={"a": {"q": {"d": 1.0}}})
        assert error.value.code == code
    with pytest.raises(UserError) as error:
        osbert.evaluate_retrieval(qrels=qrels, results=[{"q": {}}])
    assert error.value.code == "invalid-value"


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "judged.tsv"
    path.write_text("query\tdocument\tlabel\n")
    with pytest.raises(UserError) as error:
        osbert.evaluate_retrieval(data=path)
    assert error.value.code == "no-data"


def test_a_header_of_judgements_may_have_other_names(tmp_path: Path) -> None:
    path = tmp_path / "qrels.tsv"
    path.write_text("\nquery_id\tdoc_id\trel\nq\td\t1\n")
    assert read_judgements(path) == {"q": {"d": 1}}


def test_a_damaged_first_judgement_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "qrels.tsv"
    path.write_text("q1\td2\tone\nq2\td1\t2\n")
    with pytest.raises(UserError) as error:
        read_judgements(path)
    assert error.value.code == "unusable-row"
