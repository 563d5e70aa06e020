"""osbert search: the nearest texts, as a plain comparison of all finds them, from every form of file."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert
import terminal
from osbert.commands.embed import VectorOptions, embed
from osbert.commands.search import search
from osbert.inference.engine import load
from osbert.inference.vectors import files as vector_files
from osbert.inference.vectors import reading as vector_reading
from osbert.inference.vectors.lexical import BM25Index
from osbert.inference.vectors.nearest import NearestRows
from osbert.interop.sentence_files import PROMPTS
from osbert.runs.contract import Notice
from osbert.runs.file_options import TextFile
from osbert.runs.similarity import search as runs
from osbert.runs.similarity.search_file import search_file
from osbert.runs.similarity.settings import SearchOptions
from osbert.tasks.kinds.rerank import Rerank
from refusals import refusal
from tiny_runs import write_run, write_sentences

TEXTS = ["a good film", "bad", "Ärger . the plays", "film", "poor actor", "bad", "the actor plays"]


def nearest_rows(blocks, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    found = NearestRows(queries, count)
    for block in blocks:
        found.compare(block)
    return found.places, found.cosines


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.mark.parametrize("hybrid", [False, True])
def test_queries_that_the_vocabulary_lacks_are_counted_in_a_warning(
    encoder: Path, lines: Path, tmp_path: Path, hybrid: bool
) -> None:
    vectors = tmp_path / "x.npz"
    embed(encoder, lines, out=vectors)
    (tmp_path / "queries.txt").write_text("a good film\nแมว สุนัข\n")
    events: list[Any] = []
    osbert.search(vectors, ["แมว สุนัข", "film"], hybrid=hybrid, watch=events.append)
    request = runs.SearchRequest(vectors=vectors, options=SearchOptions(hybrid=hybrid))
    search_file(request, TextFile(tmp_path / "queries.txt"), out=tmp_path / "y.csv", watch=events.append)
    warnings = [event.text for event in events if isinstance(event, Notice) and event.warning]
    assert len(warnings) == 2 and all(warning.startswith("1 text ") for warning in warnings)


@pytest.mark.parametrize("form", ["npy", "npz", "parquet"])
def test_the_nearest_texts_are_shown(
    encoder: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, monkeypatch
) -> None:
    monkeypatch.setattr(vector_files, "BLOCK", 2)
    monkeypatch.setattr(vector_reading, "BLOCK", 2)
    embed(encoder, lines, out=tmp_path / f"x.{form}", vectors=VectorOptions(pooling="weighted"))
    capsys.readouterr()
    search(tmp_path / f"x.{form}", "bad", options=SearchOptions(top=5))
    shown = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    vectors = load(encoder).embed(TEXTS, pooling="weighted")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors[1]
    order = np.argsort(-cosines.round(5), kind="stable")[:5]
    assert [text for *_, text in shown] == [TEXTS[place] for place in order]
    assert [line for _, line, _ in shown] == [f"line {place + 1}" for place in order]
    np.testing.assert_allclose([float(score) for score, *_ in shown], cosines[order], atol=1e-4)


def test_prompts_are_named_where_vectors_are_made_without_and_where_queries_take_them(
    lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_sentences(tmp_path / "model")
    for default in (None, "query"):
        settings = {"prompts": {"query": "query: "}, "default_prompt_name": default}
        (model / PROMPTS).write_text(json.dumps(settings))
        out = tmp_path / f"{default}.npy"
        for words, named in (
            (("embed", model, lines, "--out", out), "prompt"),
            (("embed", model, lines, "--out", out, "--role", "document"), "role document"),
            (("search", out, "bad"), "'query: '"),
        ):
            done = terminal.told(capsys, *words)
            assert done.status == 0 and named in f"{done.output}{done.error}", words


def test_blocks_make_no_difference() -> None:
    rng = np.random.default_rng(0)
    rows, wanted = rng.normal(size=(100, 8)), rng.normal(size=(3, 8))
    rows[40] = rows[70] = wanted[1] * 2
    rows[50] = 0
    places, cosines = nearest_rows([rows], wanted, 10)
    for cut in (np.array_split(rows, 9), [rows[:95], rows[95:95], rows[95:]], np.array_split(rows, 100)):
        for one, other in zip((places, cosines), nearest_rows(cut, wanted, 10), strict=True):
            np.testing.assert_array_equal(one, other)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    plain = wanted / np.linalg.norm(wanted, axis=1, keepdims=True) @ units.T
    np.testing.assert_array_equal(places, np.argsort(-plain.round(6), kind="stable")[:, :10])
    np.testing.assert_allclose(cosines, np.take_along_axis(plain, places, axis=1), atol=1e-6)
    assert places[1, :2].tolist() == [40, 70]
    assert nearest_rows([rows], wanted, 1000)[0].shape == (3, 100)
    with refusal("damaged-file", "7", "8"):
        nearest_rows([rows[:, :7]], wanted, 10)
    rows[50, 3] = np.nan
    with refusal("not-finite", "50"):
        nearest_rows(np.array_split(rows, 9), wanted, 10)


def test_equal_vectors_come_in_the_order_of_the_file() -> None:
    rows = np.tile(np.random.default_rng(0).normal(size=(1, 8)), (500, 1))
    places, _ = nearest_rows(np.array_split(rows, 7), rows[:2], 20)
    assert places.tolist() == [list(range(20))] * 2


def test_what_cannot_be_compared_is_said(encoder: Path, run: Path, lines: Path, tmp_path: Path) -> None:
    moved = tmp_path / "model"
    shutil.copytree(encoder, moved)
    embed(moved, lines, out=tmp_path / "x.npy")
    shutil.rmtree(moved)
    with refusal("missing-file", "--model"):
        search(tmp_path / "x.npy", "bad")
    search(tmp_path / "x.npy", "bad", model=encoder)
    with refusal("mismatched-base"):
        search(tmp_path / "x.npy", "bad", model=run)
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2\ngood,bad\n")
    embed(encoder, tmp_path / "pairs.csv", out=tmp_path / "pairs.npy")
    with refusal("wrong-number-of-texts", "3"):
        search(tmp_path / "pairs.npy", "bad", "good", "bad")
    with refusal("invalid-value", "--top"):
        search(tmp_path / "x.npy", "bad", options=SearchOptions(top=0))
    embed(encoder, lines, out=tmp_path / "y.npz", vectors=VectorOptions(layers="0,1"))
    with refusal("wrong-format", "0,1"):
        search(tmp_path / "y.npz", "bad")
    (tmp_path / "x.rows.npz").unlink()
    with refusal("missing-file", "x.rows.npz"):
        search(tmp_path / "x.npy", "bad")
    (tmp_path / "z.npz").write_bytes(b"no zip")
    np.savez(tmp_path / "w.npz", vectors=np.zeros((2, 2)))
    for name, refused in (
        ("z.npz", ("damaged-file", "z.npz")),
        ("w.npz", ("damaged-file", "w.npz")),
        ("texts.txt", ("wrong-format", "texts.txt")),
        ("n.npy", ("missing-file", "n.npy")),
    ):
        with refusal(*refused):
            search(tmp_path / name, "bad")


def test_vectors_and_texts_of_different_runs_are_refused(encoder: Path, lines: Path, tmp_path: Path) -> None:
    embed(encoder, lines, out=tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.load(tmp_path / "x.npy")[:5])
    with refusal("damaged-file", "x.npy", "5", "7"):
        search(tmp_path / "x.npy", "bad")


@pytest.mark.parametrize("of", ["vectors", "texts"])
def test_one_changed_byte_is_told(encoder: Path, lines: Path, tmp_path: Path, of: str) -> None:
    path = tmp_path / "x.npz"
    embed(encoder, lines, out=path)
    (whole,) = vector_reading.open_vectors(path).blocks()
    good = path.read_bytes()
    place = good.index(whole[3].tobytes() if of == "vectors" else b"a good film")
    path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
    with refusal("damaged-file", "x.npz", "32"):
        search(path, "bad")


def test_a_damaged_parquet_file_is_told(encoder: Path, lines: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    embed(encoder, lines, out=path)
    good = path.read_bytes()
    path.write_bytes(good[:4] + bytes(len(good) // 3) + good[4 + len(good) // 3 :])
    with refusal("damaged-file", "x.parquet"):
        search(path, "bad")


def test_settings_that_are_not_there_or_not_known(encoder: Path, lines: Path, tmp_path: Path) -> None:
    embed(encoder, lines, out=tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as opened:
        arrays = dict(opened)
    arrays["settings"] = np.array(arrays["settings"].item().replace('"pooling"', '"pulling"'))
    np.savez(tmp_path / "y.npz", **arrays)
    with refusal("wrong-format", "y.npz"):
        search(tmp_path / "y.npz", "bad")
    np.savez(tmp_path / "x.npz", settings=np.array("{}"), lines=np.arange(2))
    with refusal("damaged-file"):
        search(tmp_path / "x.npz", "bad")


def test_several_queries_files_of_them_and_vectors_give_the_same(
    encoder: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "QUERIES", 2)
    path = tmp_path / "x.npz"
    embed(encoder, lines, out=path)
    queries = ["bad", "good plays", "film"]
    found = osbert.search(path, queries, top=3)
    assert [one.query for one in found] == [("bad",), ("good plays",), ("film",)]
    by_vectors = osbert.search(path, osbert.load(encoder).embed(queries), top=3)
    for one, other in zip(by_vectors, found, strict=True):
        assert [near.line for near in one.nearest] == [near.line for near in other.nearest]
        # The last digit of a vector depends on the texts that it is computed with.
        assert [near.cosine for near in one.nearest] == pytest.approx([near.cosine for near in other.nearest], abs=1e-6)
    assert osbert.search(path, "bad", top=3) == found[:1]
    few = osbert.search(path, "bad", above=0.9999)[0].nearest
    assert [one.line for one in few] == [2, 6]
    (tmp_path / "queries.csv").write_text("text,n\n" + "".join(f"{query},1\n" for query in queries))
    capsys.readouterr()
    search(path, file=tmp_path / "queries.csv", out=tmp_path / "hits.jsonl", options=SearchOptions(top=3))
    assert "3 texts: 9 rows" in capsys.readouterr().out
    hits = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert [(one["query_line"], one["query_text"], one["rank"], one["line"], one["text"]) for one in hits] == [
        (place, query.query[0], rank, near.line, near.texts[0])
        for place, query in enumerate(found, 2)
        for rank, near in enumerate(query.nearest, 1)
    ]
    with refusal("unknown-output-format", "hits.txt"):
        search(path, file=tmp_path / "queries.csv", out=tmp_path / "hits.txt")
    with refusal("missing-option", "--file"):
        search(path)
    with refusal("damaged-file", "3", "16"):
        osbert.search(path, np.ones((1, 3)))
    with refusal("not-finite"):
        osbert.search(path, np.full((1, 16), np.nan))
    with refusal("invalid-value", "16"):
        osbert.search(path, np.array([["text"] * 16]))
    with refusal("invalid-value", "texts[0]", "1"):
        osbert.search(path, [1])
    for blank in (" ", "\0", "\u200b \u2060\u200b"):  # all of them would be nearest to an empty text, with cosine 1
        with refusal("empty-text", "2"):
            osbert.search(path, ["good", blank])
    with refusal("invalid-value", "--above", "7"):
        osbert.search(path, "good", above=7)
    query = np.arange(16)[None] * 40.0  # squares that do not fit into float16
    assert osbert.search(path, query.astype(np.float16)) == osbert.search(path, query)


@pytest.mark.parametrize("hybrid", [False, True])
def test_empty_and_long_queries_of_a_file_are_counted(
    encoder: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], hybrid: bool
) -> None:
    embed(encoder, lines, out=tmp_path / "x.npz")
    (tmp_path / "q.csv").write_text('text\nbad\n""\n' + "film " * 50 + "\n")
    words = ["search", tmp_path / "x.npz", "--file", tmp_path / "q.csv", "--out", tmp_path / "o.jsonl", "--top", 2]
    done = terminal.told(capsys, *words, "--json", *(["--hybrid"] if hybrid else []))
    result = json.loads(done.output.splitlines()[-1])
    counts = {name: result[name] for name in ("queries", "rows", "empty", "cut", "length")}
    assert counts == {"queries": 3, "rows": 4, "empty": 1, "cut": 1, "length": 24}
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [row["query_line"] for row in rows] == [2, 2, 4, 4]


def test_the_opposite_of_a_query_is_not_lost_to_rounding(encoder: Path, lines: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    embed(encoder, lines, out=path)
    queries = np.concatenate([-np.float32(scale) * np.load(path)["vectors"] for scale in np.linspace(1, 9, 50)])
    for near in osbert.search(path, queries, top=7):
        assert len(near.nearest) == 7 and all(-1 <= hit.cosine <= 1 for hit in near.nearest)


def test_hybrid_search_finds_words(encoder: Path, lines: Path, tmp_path: Path) -> None:
    embed(encoder, lines, out=tmp_path / "x.npz")
    (found,) = osbert.search(tmp_path / "x.npz", "Ärger", top=1, hybrid=True)
    assert [one.line for one in found.nearest] == [3]
    with refusal("options-exclude-each-other"):
        osbert.search(tmp_path / "x.npz", np.ones((1, 16)), hybrid=True)


def test_a_reranker_comes_last(encoder: Path, lines: Path, tmp_path: Path) -> None:
    path, ranker = tmp_path / "x.npz", write_run(tmp_path / "ranker", Rerank())
    embed(encoder, lines, out=path)
    (before,), (found,) = (
        osbert.search(path, "bad film", top=top, rerank=name) for top, name in ((7, ""), (3, str(ranker)))
    )
    (prediction,) = load(ranker).predict([("bad film", *(near.texts[0] for near in before.nearest))])
    expected = sorted(enumerate(prediction.value), key=lambda pair: -pair[1])[:3]
    assert [near.rank - 1 for near in found.nearest] == [index for index, _ in expected]
    assert [near.score for near in found.nearest] == pytest.approx([score for _, score in expected])
    assert [near.line for near in found.nearest] == [before.nearest[index].line for index, _ in expected]
    assert "before: " in found.nearest[0].describe()
    with refusal("invalid-value", "--top", "-1"):
        osbert.search(path, "bad", top=-1, rerank=str(ranker))
    with refusal("unsupported-model"):
        osbert.search(path, "bad", rerank=str(encoder))
    with refusal("options-exclude-each-other"):
        osbert.search(path, np.ones((1, 16)), rerank=str(ranker))


def test_what_a_reranker_did_not_read_is_counted(encoder: Path, tmp_path: Path) -> None:
    ranker, events = write_run(tmp_path / "ranker", Rerank()), list[Any]()
    length = load(ranker).packer.length
    texts = ["good film", "bad " * length, "the actor", "poor " * (length + 9)]
    (tmp_path / "long.txt").write_text("\n".join(texts))
    embed(encoder, tmp_path / "long.txt", out=tmp_path / "x.npz")
    (found,) = osbert.search(tmp_path / "x.npz", "film", rerank=str(ranker), watch=events.append)
    unread = {near.line: near.unread for near in found.nearest}
    assert unread == {1: 0, 2: 4, 3: 0, 4: 13}
    (notice,) = (str(event) for event in events if isinstance(event, Notice) and "reranker" in str(event))
    assert "17 pieces of 2 of 4 texts" in notice and f"{length} tokens" in notice
    events.clear()
    osbert.search(tmp_path / "x.npz", "film", top=1, model=encoder, watch=events.append)
    assert not [event for event in events if "reranker" in str(event)]
    osbert.search(tmp_path / "x.npz", "film " * length, rerank=str(ranker), watch=events.append)
    assert [event for event in events if "reranker" in str(event)]


def test_weights_decide_between_vectors_and_words(encoder: Path, lines: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    embed(encoder, lines, out=path)

    def find(**options: Any) -> list[int]:
        (found,) = osbert.search(path, "the bad plays", top=3, **options)
        return [near.line for near in found.nearest]

    assert find(hybrid=True, weights="1,0") == find()
    by_words = [index for index, _ in BM25Index(TEXTS).rank("the bad plays", 3)]
    opened = [row.line for row in vector_reading.open_vectors(path).rows(by_words)]
    assert find(hybrid=True, weights="0,2.5")[:2] == opened[:2]
    for weights in ("1", "1,x", "1,-1", "0,0", "1,nan"):
        with refusal("invalid-value", "x.npz", "bm25"):
            find(hybrid=True, weights=weights)
    with refusal("invalid-value", "0,0", "above 0"):
        find(hybrid=True, weights="0,0")
    with refusal("missing-option"):
        find(weights="1,1")


def test_an_ideograph_alone_is_looked_for_within_words_and_other_scores_stay() -> None:
    texts = ["我家有一只猫。", "猫 and dog", "狗和猫都喜欢猫", "狗跑了", "a dog"]
    for index in (BM25Index(texts), BM25Index.of_queries(texts, ["猫", "猫都", "dog"])):
        assert sorted(row for row, _ in index.rank("猫", 5)) == [0, 1, 2]
        assert dict(index.rank("猫", 5))[2] > dict(index.rank("猫", 5))[0]  # which holds it once
        assert [row for row, _ in index.rank("猫都", 5)] == [2]
        assert index.explain("猫", 0) == {"猫": 1}
    lengths = np.array([5, 3, 6, 2, 2])  # of the bigrams and words
    idf, normalizers = math.log(1 + 3.5 / 2.5), 1.2 * (0.25 + 0.75 * lengths / lengths.mean())
    assert dict(BM25Index(texts).rank("dog", 5)) == {row: idf * 2.2 / (1 + normalizers[row]) for row in (1, 4)}


def test_bm25_is_the_sum_over_a_plain_matrix() -> None:
    texts = ["a cat sat", "the dog sat on the cat", "", "a bird"]
    words = [text.split() for text in texts]
    mean = sum(map(len, words)) / 4
    expected = []
    for query in (["cat", "sat", "cat"], ["absent"]):
        scores = [
            sum(
                math.log(1 + (4 - df + 0.5) / (df + 0.5)) * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(own) / mean))
                for word in query
                if (df := sum(word in other for other in words)) and (tf := own.count(word))
            )
            for own in words
        ]
        expected.append(sorted(((n, one) for n, one in enumerate(scores) if one), key=lambda pair: -pair[1])[:2])
    found = [BM25Index(texts).rank(query, 2) for query in ("cat sat cat", "absent")]
    assert found == [BM25Index.of_queries(texts, ["cat sat cat"]).rank(query, 2) for query in ("cat sat cat", "absent")]
    assert [[place for place, _ in one] for one in found] == [[place for place, _ in one] for one in expected]
    np.testing.assert_allclose([one for _, one in found[0]], [one for _, one in expected[0]])


@pytest.mark.lab
@pytest.mark.parametrize("backend", ["faiss", "usearch"])
def test_an_index_finds_what_the_comparison_of_all_finds(
    encoder: Path, lines: Path, tmp_path: Path, backend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from osbert_lab.approximate_search import index_path

    pytest.importorskip(backend)
    path = tmp_path / "x.npy"
    embed(encoder, lines, out=path)
    exact = osbert.search(path, ["bad", "film"], top=4)
    for _ in range(2):  # the second time from the index beside the file
        events: list[object] = []
        found = osbert.search(path, ["bad", "film"], top=4, backend=backend, watch=events.append)
        assert sum("100.0%" in str(event) for event in events) == 1
        assert "WARNING" not in "".join(capfd.readouterr())
        assert [[near.texts for near in query.nearest] for query in found] == [
            [near.texts for near in query.nearest]
            for query in exact  # of equal texts either
        ]
    written = index_path(path, backend).stat().st_mtime_ns
    for queries, code in ((np.ones((1, 5)), "damaged-file"), (np.full((1, 16), np.nan), "not-finite")):
        with refusal(code):
            osbert.search(path, queries, backend=backend)
    index_path(path, backend).write_bytes(b"damaged")
    (found,) = osbert.search(path, "bad", top=1, backend=backend)
    assert found.nearest[0].texts == exact[0].nearest[0].texts
    lines.write_text("film\nbad\ngood\n")
    embed(encoder, lines, out=path)
    (found,) = osbert.search(path, "bad", top=1, backend=backend)
    assert found.nearest[0].line == 2 and index_path(path, backend).stat().st_mtime_ns > written


@pytest.mark.lab
def test_a_backend_without_its_library_names_the_extra(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(encoder, lines, out=tmp_path / "x.npz")
    for backend, module in (("faiss", "faiss"), ("usearch", "usearch.index")):
        monkeypatch.setitem(sys.modules, module, None)
        with refusal("missing-library", f"osbert[{backend}]"):
            osbert.search(tmp_path / "x.npz", "bad", backend=backend)
    with refusal("invalid-value", "hnsw"):
        osbert.search(tmp_path / "x.npz", "bad", backend="hnsw")
