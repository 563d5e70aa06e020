"""Many vectors a text in files: written, resumed, searched and measured as other kinds are; what they cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert
import terminal
import tiny_runs
from interrupted import stop_an_update
from osbert.commands.embed import VectorArguments, embed
from osbert.data.late_interaction import LateInteraction
from osbert.data.multi_vectors import MultiVectors, maxsim
from osbert.inference.engine import load
from osbert.inference.kinds import KINDS
from osbert.inference.multi_vectors import nearest
from osbert.inference.vectors.reading import open_vectors
from osbert.interop.sentence_files import Prompts, SentenceModel, write_sentence_model
from osbert.interop.sentence_parts import Dense, TokenMask
from osbert.runs.rows import vector_parts
from refusals import refusal, refused

TEXTS = ["a good film", "bad", "the plays . the plays", "film", "poor actor", "the actor plays"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a random model of 8 numbers a token with a prompt for queries, which are filled up to 8 tokens."""
    folder = tiny_runs.write_run(tmp_path / "model", None, masks=True)
    weight = np.random.default_rng(5).normal(size=(8, 16)).astype(np.float32)
    settings = SentenceModel(
        pooling="colbert", normalize=True, length=12, similarity="maxsim",
        prompts=Prompts(texts={"query": "a ", "document": ""}),
        parts=(Dense({"linear.weight": weight}, "torch.nn.modules.linear.Identity"), TokenMask(skipped=("the",))),
        late=LateInteraction(query_length=8, expansion=8),
    )  # fmt: skip
    write_sentence_model(folder, settings, width=16)
    return folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
    return path


def read(path: Path) -> MultiVectors:
    return MultiVectors.stack([*KINDS["multi"].blocks(open_vectors(path))])


def test_a_file_holds_what_embed_returns(
    model: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(model)
    expected = engine.embed(TEXTS, role="document")
    names = [[engine.tokenizer.vocabulary[piece] for piece in expected[k : k + 1].ids] for k in range(len(TEXTS))]
    for rows in (8192, 2):
        monkeypatch.setattr(vector_parts, "ROWS", rows)
        out = tmp_path / f"{rows}.npz"
        written = osbert.embed(model, lines, out=out)
        assert written.shape == expected.vectors.shape and any("vectors a text" in line for line in written.describe())
        monkeypatch.setattr(nearest, "BLOCK", 8)
        assert len([*KINDS["multi"].blocks(open_vectors(out))]) > 2
        actual = read(out)
        np.testing.assert_array_equal(actual.starts, expected.starts)
        np.testing.assert_array_equal(actual.ids, expected.ids)
        np.testing.assert_allclose(actual.vectors, expected.vectors, atol=1e-6)
    osbert.embed(model, lines, out=tmp_path / "x.jsonl")
    entries = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [entry["text"] for entry in entries] == TEXTS and [entry["pieces"] for entry in entries] == names
    for entry, vectors in zip(entries, expected, strict=True):
        np.testing.assert_allclose(entry["vector"], vectors, atol=1e-6)


def test_the_command_searches_and_names_the_matches(
    model: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, engine = tmp_path / "x.npz", load(model)
    assert terminal.run("embed", model, lines, "--out", out) == 0
    query, texts = engine.embed(["bad film"], role="query"), engine.embed(TEXTS, role="document")
    assert len(query.ids) == 8
    (scores,) = maxsim(query, texts)
    order = np.argsort(-scores, kind="stable")
    capsys.readouterr()
    done = terminal.told(capsys, "search", out, "bad film", "--top", 3, "--json")
    result = json.loads(done.output.splitlines()[-1])
    assert [near["texts"][0] for near in result["nearest"]] == [TEXTS[index] for index in order[:3]]
    for near, index in zip(result["nearest"], order):
        assert near["score"] == pytest.approx(float(scores[index]), rel=1e-5)
        products = query[0] @ texts[index].T
        pieces = texts[int(index) : int(index) + 1].ids[products.argmax(axis=1)]
        expected: dict[str, float] = {}
        for ours, theirs, product in zip(query.ids, pieces, products.max(axis=1)):
            name = " > ".join(dict.fromkeys(engine.tokenizer.vocabulary[piece] for piece in (ours, theirs)))
            expected[name] = expected.get(name, 0) + product / scores[index]
        assert near["words"] == pytest.approx(expected, rel=1e-4)
    found = osbert.search(out, ["bad film", "actor"], hybrid=True)
    assert [len(neighbourhood.nearest) for neighbourhood in found] == [len(TEXTS)] * 2
    (tmp_path / "queries.txt").write_text("bad film\n")
    assert terminal.run("search", out, "--file", tmp_path / "queries.txt", "--out", tmp_path / "o.csv", "--top", 2) == 0
    assert (tmp_path / "o.csv").read_text().splitlines()[0] == "query_line,query_text,rank,score,line,text,words"
    osbert.embed(model, lines, out=tmp_path / "dense.npy", pooling="mean", role="document")
    for backend in ("plaid", "plaid-2bit"):
        done = terminal.told(capsys, "search", out, "bad film", "--backend", backend)
        assert done.status == 0 and all(text in done.output for text in TEXTS)
        assert (tmp_path / f"x.npz.{backend}").is_file()
    (fused,) = osbert.search(out, "bad film", also=[tmp_path / "dense.npy"])
    assert len(fused.nearest) == len(TEXTS)


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
    actual = read(path).vectors
    anew = osbert.embed(model, file, out=path)
    assert updated.shape == anew.shape and {**updated.tally, "reused": 0} == {**anew.tally, "reused": 0}
    np.testing.assert_allclose(actual, read(path).vectors, atol=1e-5)
    for texts in (TEXTS[:1], TEXTS):
        file.write_text("\n".join(texts))
        assert osbert.embed(model, file, out=path, update=True).tally["rows"] == len(texts)


def test_a_search_is_measured(model: Path) -> None:
    corpus = {str(number): text for number, text in enumerate(TEXTS)}
    found = osbert.evaluate_retrieval(model, corpus=corpus, queries={"q": "bad film"}, qrels={"q": {"3": 1}})
    engine = load(model)
    (scores,) = maxsim(engine.embed(["bad film"], role="query"), engine.embed(TEXTS, role="document"))
    assert found.measures["mrr"] == pytest.approx(1 / (1 + int((scores > scores[3]).sum())))


def test_what_they_cannot_do_is_refused(
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
        (("search", out, " "), "empty-text"),
        (("search", out, "film", "--model", runs["encoder"]), "mismatched-base"),
    ):
        refused(terminal.told(capsys, *words), code)
    with refusal("options-exclude-each-other"):
        osbert.search(out, np.ones((1, 8)))


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
    changes = (
        ("starts", content["starts"][::-1], "damaged-file"),
        ("starts", content["starts"] + 1, "damaged-file"),
        ("ids", content["ids"][:-1], "damaged-file"),
        ("vectors", content["vectors"][:-1], "damaged-file"),
        ("vectors", content["vectors"][:, :-1], "damaged-file"),
        ("vectors", content["vectors"] * np.float32(np.nan), "not-finite"),
    )
    for name, array, code in changes:
        np.savez(tmp_path / "damaged.npz", **(content | {name: array}))
        with refusal(code):
            osbert.search(tmp_path / "damaged.npz", "film")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["multi", "encoder", "marked"])
def test_many_vectors_are_trained_and_the_run_gives_them(
    kind: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = model
    if kind != "multi":
        markers = ("[unused0]", "[unused1]") if kind == "marked" else ()
        start = tiny_runs.write_run(tmp_path / "plain", None, words=[*tiny_runs.WORDS, *markers])
    words = [("good", "fine"), ("bad", "poor"), ("film", "actor")]
    rows = [
        {"query": f"{one} {noun}", "positive": f"the {other} {noun}", "negative": f"the {words[place - 1][1]} {noun}"}
        for noun in ("play", "plays", "a play", "the play")
        for place, (one, other) in enumerate(words)
    ]
    settings: dict[str, Any] = {"data": {"train": rows * 2, "dev": rows}, "precision": "fp32", "batch": 8}
    settings |= {"epochs": 20, "learning_rate": 1e-2, "dropout": 0.0, "length": 12}
    more = {} if kind == "multi" else {"pooling": "colbert", "query_length": 10, "token_width": 6, "skipped": "the ."}
    run = osbert.finetune("contrastive", model=start, out=tmp_path / "run", **settings, **more)
    assert run.metrics["accuracy"] > run.facts["before"]["accuracy"] + 0.2
    late, width = (run.model.source.sentences.late, 6) if more else (load(model).source.sentences.late, 8)  # type: ignore[union-attr]
    assert run.model.source.sentences.late == late and late.expansion == (10 if more else 8)  # type: ignore[union-attr]
    assert late.prefixes.get("query", "") == ("[unused0]" if kind == "marked" else "")
    queries, texts = [row["query"] for row in rows[:4]], [row["positive"] for row in rows[:4]]
    query, document = run.model.embed(queries, role="query"), run.model.embed(texts, role="document")
    assert query[0].shape == (late.expansion, width)
    values = [prediction.value for prediction in run.predict([*zip(queries, texts)])]
    np.testing.assert_allclose(values, np.diag(maxsim(query, document)), rtol=1e-4)
    # With markers the folder has the form of PyLate. sentence-transformers opens both, and it goes on with its weights.
    kinds = [part["type"].partition(".")[0] for part in json.loads((run.folder / "modules.json").read_text())]
    assert ("pylate" in kinds) == (kind == "marked")
    theirs = pytest.importorskip("sentence_transformers").MultiVectorEncoder(str(run.folder), device="cpu")
    for ours, other in ((query, theirs.encode_query(queries)), (document, theirs.encode_document(texts))):
        for row, expected in zip(ours, other, strict=True):
            np.testing.assert_allclose(row, expected.numpy(), atol=2e-6)
    terminal.run("convert", run.folder, tmp_path / "converted", "--to", "huggingface")
    assert "Only osbert reads" not in capsys.readouterr().out
    resumed = settings | {"epochs": 1, "learning_rate": 1e-9}
    again = osbert.finetune("contrastive", model=run.folder, out=tmp_path / "again", **resumed)
    np.testing.assert_allclose(again.model.embed(texts).vectors, document.vectors, atol=1e-4)
    with refusal("invalid-value", "--query-length", "9"):
        osbert.finetune("contrastive", model=run.folder, out=tmp_path / "no", **settings, query_length=9)
    with refusal("options-exclude-each-other"):
        single = settings | {"data": {"train": [{"text": text} for text in texts]}}
        osbert.finetune("contrastive", model=run.folder, out=tmp_path / "no", **single)
