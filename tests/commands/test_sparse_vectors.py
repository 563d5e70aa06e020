"""Sparse vectors in files: written, resumed, searched and measured as dense ones are; what they cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import osbert
import terminal
import tiny_runs
from interrupted import stop_an_update
from osbert.commands.embed import VectorArguments, embed
from osbert.inference import kinds
from osbert.inference.engine import load
from osbert.inference.kinds import KINDS
from osbert.inference.vectors import reading
from osbert.interop.sentence_files import Prompts, SentenceModel, write_sentence_model
from osbert.runs.rows import vector_parts
from osbert.training.progress import Progress
from refusals import refusal, refused

TEXTS = ["a good film", "bad", "the plays . the plays", "film", "poor actor", "the actor plays"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a random sparse model with a prompt for queries."""
    folder = tiny_runs.write_run(tmp_path / "model", None, masks=True)
    prompts = Prompts(texts={"query": "a ", "document": ""})
    settings = SentenceModel(pooling="splade", normalize=False, length=12, prompts=prompts, similarity="dot")
    write_sentence_model(folder, settings, width=16)
    return folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
    return path


def test_a_file_holds_what_embed_returns(
    model: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(model)
    expected = engine.embed(TEXTS, role="document")
    for rows in (8192, 2):
        monkeypatch.setattr(vector_parts, "ROWS", rows)
        out = tmp_path / f"{rows}.npz"
        written = osbert.embed(model, lines, out=out, role="document")
        assert written.shape == expected.shape and written.tally["weights"] == expected.nnz
        np.testing.assert_allclose(scipy.sparse.load_npz(out).toarray(), expected.toarray(), atol=1e-5)
        monkeypatch.setattr(kinds, "BLOCK", 4)
        blocks = [block.toarray() for block in KINDS["sparse"].blocks(reading.open_vectors(out))]
        assert [len(block) for block in blocks] == [4, 2]
        np.testing.assert_array_equal(np.concatenate(blocks), scipy.sparse.load_npz(out).toarray())
    osbert.embed(model, lines, out=tmp_path / "x.jsonl", role="document")
    for line, row, text in zip((tmp_path / "x.jsonl").read_text().splitlines(), expected.toarray(), TEXTS, strict=True):
        entry = json.loads(line)
        weights = {engine.tokenizer.vocabulary[piece]: row[piece] for piece in np.flatnonzero(row)}
        assert entry["text"] == text and entry["vector"] == pytest.approx(weights, abs=1e-5)
        assert list(entry["vector"].values()) == sorted(entry["vector"].values(), reverse=True)


def test_columns_are_kept_under_free_names(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,data\ngood,1\nbad,22\n")
    osbert.embed(model, tmp_path / "in.csv", out=tmp_path / "x.npz", keep_columns=True)
    with np.load(tmp_path / "x.npz") as arrays:
        assert arrays["data"].dtype == np.float32
        assert arrays["data 2"].tobytes() == b"122" and arrays["data 2_ends"].tolist() == [1, 3]


def test_the_command_searches_and_names_the_words(
    model: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, engine = tmp_path / "x.npz", load(model)
    assert terminal.run("embed", model, lines, "--out", out, "--role", "document") == 0
    query, rows = engine.embed(["bad film"], role="query").toarray()[0], engine.embed(TEXTS, role="document").toarray()
    order = np.argsort(-(rows @ query), kind="stable")
    capsys.readouterr()
    done = terminal.told(capsys, "search", out, "bad film", "--top", 3, "--json")
    result = json.loads(done.output.splitlines()[-1])
    assert [near["texts"][0] for near in result["nearest"]] == [TEXTS[index] for index in order[:3]]
    for near, index in zip(result["nearest"], order):
        assert near["score"] == pytest.approx(float(rows[index] @ query), rel=1e-5)
        common = rows[index] * query / (rows[index] @ query)
        names = {engine.tokenizer.vocabulary[piece]: common[piece] for piece in np.flatnonzero(common)}
        assert near["words"] == pytest.approx(names, rel=1e-4)
    done = terminal.told(capsys, "search", out, "bad film", "--top", 1)
    assert done.status == 0 and "%" in done.output and TEXTS[order[0]] in done.output
    found = osbert.search(out, ["bad film", "actor"], hybrid=True)
    assert [len(neighbourhood.nearest) for neighbourhood in found] == [len(TEXTS)] * 2
    (tmp_path / "queries.txt").write_text("bad film\n")
    assert terminal.run("search", out, "--file", tmp_path / "queries.txt", "--out", tmp_path / "o.csv", "--top", 2) == 0
    assert (tmp_path / "o.csv").read_text().splitlines()[0] == "query_line,query_text,rank,score,line,text,words"
    score = float(rows[order[0]] @ query)
    assert len(osbert.search(out, "bad film", above=score - 1e-3)[0].nearest) == 1


def test_a_file_is_updated_as_if_it_were_made_anew(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = tmp_path / "texts.txt", tmp_path / "x.npz"
    file.write_text("\n".join(TEXTS[:4]))
    osbert.embed(model, file, out=path)
    file.write_text("\n".join(["good", *TEXTS[::-1], "bad bad"]))
    stop_an_update(monkeypatch, model, file, path)
    updated = osbert.embed(model, file, out=path, update=True)
    assert updated.tally["reused"] == 4
    actual = scipy.sparse.load_npz(path).toarray()
    anew = osbert.embed(model, file, out=path)
    assert updated.shape == anew.shape and {**updated.tally, "reused": 0} == {**anew.tally, "reused": 0}
    np.testing.assert_allclose(actual, scipy.sparse.load_npz(path).toarray(), atol=1e-5)
    for texts in (TEXTS[:1], TEXTS):
        file.write_text("\n".join(texts))
        assert osbert.embed(model, file, out=path, update=True).tally["rows"] == len(texts)


def test_a_search_is_measured(model: Path) -> None:
    corpus, queries = dict(enumerate(TEXTS)), {"q": "bad film"}
    found = osbert.evaluate_retrieval(
        model, corpus={str(key): text for key, text in corpus.items()}, queries=queries, qrels={"q": {"3": 1}}
    )
    assert [system.name for system in found.systems] == [model.parent.name, "bm25"]
    engine = load(model)
    scores = engine.embed(TEXTS, role="document").toarray() @ engine.embed(["bad film"], role="query").toarray()[0]
    rank = 1 + int((scores > scores[3]).sum())
    assert found.measures["mrr"] == pytest.approx(1 / rank)


def test_what_sparse_vectors_cannot_do_is_refused(
    model: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: dict[str, Path]
) -> None:
    out = tmp_path / "x.npz"
    embed(model, lines, out=out)
    capsys.readouterr()
    for form in (".npy", ".parquet"):
        with refusal("unknown-output-format", form):
            osbert.embed(model, lines, out=tmp_path / f"x{form}")
    for words, code in (
        (("embed", model, lines, "--out", tmp_path / "y.npz", "--dtype", "int8"), "options-exclude-each-other"),
        (("search", out, "film", "--backend", "faiss"), "options-exclude-each-other"),
        (("search", out, "film", "--model", runs["encoder"]), "mismatched-base"),
    ):
        refused(terminal.told(capsys, *words), code)
    with refusal("options-exclude-each-other"):
        osbert.search(out, np.ones((1, 16)))


@pytest.mark.lab
def test_near_duplicates_are_of_dense_vectors(
    model: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embed(model, lines, out=tmp_path / "x.npz")
    capsys.readouterr()
    refused(terminal.told(capsys, "duplicates", tmp_path / "x.npz"), "wrong-format")
    embed(model, lines, out=tmp_path / "dense.npz", vectors=VectorArguments(pooling="mean"))
    assert terminal.run("duplicates", tmp_path / "dense.npz") == 0


def test_a_damaged_file_is_an_error(model: Path, lines: Path, tmp_path: Path) -> None:
    embed(model, lines, out=tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as arrays:
        content = dict(arrays)
    for name, change in (
        ("indices", lambda array: array + 10**6),
        ("indptr", lambda array: array[::-1]),
        ("data", lambda array: array[:-1]),
        ("data", lambda array: array * np.float32(np.nan)),
        ("shape", lambda array: array + 1),
    ):
        np.savez(tmp_path / "damaged.npz", **(content | {name: change(content[name])}))
        with refusal(
            "not-finite" if name == "data" and len(change(content[name])) == len(content[name]) else "damaged-file"
        ):
            osbert.search(tmp_path / "damaged.npz", "film")


@pytest.mark.lab
def test_a_sparse_model_is_not_adapted(model: Path, tmp_path: Path, lines: Path) -> None:
    with refusal("unsupported-model", "SPLADE"):
        osbert.adapt(model, lines, out=tmp_path / "adapted", steps=1)


@pytest.mark.parametrize("kind", ["sparse", "masked"])
def test_sparse_vectors_are_trained_and_the_run_gives_them(
    kind: str, model: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = model if kind == "sparse" else tiny_runs.write_run(tmp_path / "masked", None, masks=True)
    words = [("good", "fine"), ("bad", "poor")]
    rows = [
        {"query": f"{one} {noun}", "positive": f"the {other} {noun}", "negative": f"the {words[place - 1][1]} {noun}"}
        for noun in ("film", "actor", "play", "plays")
        for place, (one, other) in enumerate(words)
    ]
    settings: dict[str, Any] = {"data": {"train": rows * 3, "dev": rows}, "precision": "fp32", "batch": 8}
    settings |= {
        "epochs": 60,
        "learning_rate": 5e-3,
        "dropout": 0.0,
        "pooling": "auto" if kind == "sparse" else "splade",
    }
    events: list[Any] = []
    run = osbert.finetune("contrastive", model=start, out=tmp_path / "run", watch=events.append, **settings)
    losses = [event for event in events if isinstance(event, Progress)]
    assert run.metrics["accuracy"] > run.facts["before"]["accuracy"] + 0.2 and losses[-1].loss < losses[0].loss * 0.75
    assert losses[-1].ratios["contrastive.active_pieces"] <= 16
    query, document = (
        run.model.embed([rows[0][name]], role=role) for name, role in (("query", "query"), ("positive", "document"))
    )
    assert query.shape == (1, 16) and scipy.sparse.issparse(query)
    [prediction] = run.predict([(rows[0]["query"], rows[0]["positive"])])
    assert prediction.value == pytest.approx(float((query @ document.T).toarray()[0, 0]), rel=1e-4)
    # The folder is that of a SparseEncoder, in sentence-transformers too, and goes on with its own weights.
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SparseEncoder(str(run.folder), device="cpu")
    texts = [row["positive"] for row in rows[:4]]
    np.testing.assert_allclose(
        theirs.encode_document(texts).to_dense().numpy(), run.model.embed(texts, role="document").toarray(), atol=1e-5
    )
    capsys.readouterr()
    terminal.run("convert", run.folder, tmp_path / "converted", "--to", "huggingface")
    assert "Only osbert reads" not in capsys.readouterr().out
    np.testing.assert_allclose(
        osbert.load(tmp_path / "converted").embed(texts).toarray(), run.model.embed(texts).toarray(), atol=1e-6
    )
    again = osbert.finetune(
        "contrastive",
        model=run.folder,
        out=tmp_path / "again",
        **settings | {"epochs": 1, "learning_rate": 1e-9, "pooling": "auto"},
    )
    np.testing.assert_allclose(again.model.embed(texts).toarray(), run.model.embed(texts).toarray(), atol=1e-4)
    with refusal("unsupported-model", "masked pieces"):
        osbert.finetune("contrastive", model=encoder, out=tmp_path / "no", **settings | {"pooling": "splade"})


def test_rankings_of_several_files_are_fused(
    model: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dense, sparse = tmp_path / "dense.npy", tmp_path / "sparse.npz"
    osbert.embed(model, lines, out=dense, pooling="mean", role="document")
    osbert.embed(model, lines, out=sparse, role="document")
    rankings = {path: [near.line for near in osbert.search(path, "bad film")[0].nearest] for path in (dense, sparse)}
    (weighted,) = osbert.search(dense, "bad film", also=[sparse], weights="1,0", top=4)
    assert [near.line for near in weighted.nearest] == rankings[dense][:4]
    (fused,) = osbert.search(dense, "bad film", also=[sparse], top=4)
    scores = {
        line: sum(1 / (61 + ranking.index(line)) for ranking in rankings.values() if line in ranking)
        for line in rankings[dense]
    }
    best = sorted(scores, key=lambda line: (-scores[line], line))[:4]
    assert [near.line for near in fused.nearest] == best
    for near in fused.nearest:
        ranks = {path.name: ranking.index(near.line) + 1 for path, ranking in rankings.items() if near.line in ranking}
        assert near.ranks == ranks
    done = terminal.told(capsys, "search", dense, "bad film", "--also", sparse, "--hybrid", "--top", 2, "--json")
    result = json.loads(done.output.splitlines()[-1])
    assert len(result["nearest"]) == 2 and any("bm25" in near["ranks"] for near in result["nearest"])
    done = terminal.told(capsys, "search", dense, "bad film", "--also", sparse, "--top", 1)
    assert f"line {best[0]}" in done.output and "sparse.npz" in done.output


def test_only_files_of_the_same_texts_are_fused(
    model: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "others.txt").write_text(f"{TEXTS[0]}\n\nbad\n")
    osbert.embed(model, lines, out=tmp_path / "x.npz")
    osbert.embed(model, tmp_path / "others.txt", out=tmp_path / "others.npz")
    with refusal("mismatched-base", "others.npz", "row 3"):
        osbert.search(tmp_path / "x.npz", "film", also=[tmp_path / "others.npz"])
    with refusal("duplicate-name"):
        osbert.search(tmp_path / "x.npz", "film", also=[tmp_path / "x.npz"])
    for words in (("--above", 0.5), ("--model", model)):
        done = terminal.told(capsys, "search", tmp_path / "x.npz", "film", "--also", tmp_path / "others.npz", *words)
        refused(done, "options-exclude-each-other")
