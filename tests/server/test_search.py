"""POST /v1/search: the answers of `osbert search` and their reasons, from files that may be replaced meanwhile."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import osbert
import tiny_runs
from osbert.interop.colbert_files import LateInteraction
from osbert.interop.folder import Folder
from osbert.interop.opening import Opening
from osbert.interop.sentence_files import Prompts, SentenceModel, write_sentence_model
from osbert.interop.sentence_parts import Dense, TokenMask
from osbert.runs.similarity import fused_search
from osbert.runs.similarity.search import Finder
from osbert.runs.similarity.served_search import read_searched
from osbert.runs.similarity.settings import RankingOptions
from osbert.server.calls.models import include_folder
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker
from osbert.tasks.kinds.rerank import Rerank
from refusals import refusal

TEXTS = ["a good film", "bad", "the plays . the plays", "film", "poor actor", "bad", "the actor plays"]
CAREFUL = Opening(verify=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return models of each kind, a reranker, and the files of vectors that they make of the same texts."""
    base = tmp_path_factory.mktemp("search")
    lines = base / "texts.txt"
    lines.write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
    folders = {name: tiny_runs.write_run(base / name, None, masks=True) for name in ("dense", "sparse", "multi")}
    prompts = Prompts(texts={"query": "a ", "document": ""})
    late = LateInteraction(query_length=8, expansion=8)
    weight = np.random.default_rng(5).normal(size=(8, 16)).astype(np.float32)
    parts = (Dense({"linear.weight": weight}, "torch.nn.modules.linear.Identity"), TokenMask(skipped=("the",)))
    for name, settings in {
        "dense": SentenceModel(pooling="mean", normalize=True, length=12, prompts=prompts),
        "sparse": SentenceModel(pooling="splade", normalize=False, length=12, prompts=prompts, similarity="dot"),
        "multi": SentenceModel(
            pooling="colbert", normalize=True, length=12, prompts=prompts, similarity="maxsim", parts=parts, late=late
        ),
    }.items():
        write_sentence_model(folders[name], settings, width=16)
    files = {name: base / f"{name}.{'npy' if name == 'dense' else 'npz'}" for name in folders}
    for name, path in files.items():
        osbert.embed(folders[name], lines, out=path, role="document")
    ranker = tiny_runs.write_run(base / "ranker", Rerank())
    return SimpleNamespace(base=base, lines=lines, folders=folders, files=files, ranker=ranker)


def open_worker(vectors: Path, *, also: tuple[Path, ...] = (), model: Path | None = None, **ranking: Any) -> Worker:
    searched = read_searched(vectors, also, model, RankingOptions(**ranking))
    assert searched
    return Worker(Orders(runs=include_folder([], searched.folder), searched=searched, device="cpu", opening=CAREFUL))


def answer(worker: Worker, **values: Any) -> tuple[int, Any]:
    now = time.monotonic()
    fields = {"model": None, "pieces": False, "query": None, "queries": None, "k": 3, **values}
    (reply,) = worker.take_in([Dispatch(1, "search", fields, now, now + 60)]) or worker.work().answers
    return reply.status, json.loads(reply.body)


def test_a_query_without_pieces_is_refused_though_a_prompt_stands_before_it(made: SimpleNamespace) -> None:
    for text in ("", " ", "\u200b"):
        status, reply = answer(open_worker(made.files["dense"]), queries=["film", text])
        assert (status, reply["error"]["field"]) == (422, "queries[1]")


@pytest.mark.parametrize("name", ["dense", "sparse", "multi"])
def test_each_kind_of_vectors_gives_the_hits_of_a_search_and_their_words(made: SimpleNamespace, name: str) -> None:
    worker = open_worker(made.files[name])
    status, reply = answer(worker, queries=["bad film", "the actor"], pieces=True)
    expected = osbert.search(made.files[name], ["bad film", "the actor"], top=3)
    assert status == 200 and reply["count"] == len(TEXTS) and len(reply["pieces"]) == 2
    for result, neighbourhood in zip(reply["results"], expected, strict=True):
        assert result["query"] == neighbourhood.query[0]
        for rank, (hit, near) in enumerate(zip(result["hits"], neighbourhood.nearest, strict=True), 1):
            assert (hit["line"], hit["text"]) == (near.line, near.texts[0])
            assert hit["score"] == pytest.approx(near.score, abs=1e-6)
            system = hit["systems"][made.files[name].name]
            assert system["rank"] == rank and system["score"] == hit["score"]
            assert system.get("words", {}) == pytest.approx(dict(getattr(near, "words", {})), abs=1e-5)
    facts = worker.ready().models[0]["search"]
    assert facts == {"systems": [made.files[name].name], "columns": 1, "reranks": False}


def test_several_files_and_words_are_fused_as_by_a_search(made: SimpleNamespace) -> None:
    also = (made.files["sparse"], made.files["multi"])
    for options in ({"hybrid": True}, {}, {"hybrid": True, "weights": "0.4,0.1,0.2,0.3"}):
        status, reply = answer(open_worker(made.files["dense"], also=also, **options), query="bad film", k=5)
        (expected,) = osbert.search(made.files["dense"], "bad film", also=also, top=5, **options)
        assert status == 200 and len(reply["results"][0]["hits"]) == 5
        for hit, near in zip(reply["results"][0]["hits"], expected.nearest, strict=True):
            assert hit["line"] == near.line and hit["score"] == pytest.approx(near.score, abs=1e-6)
            assert {name: part["rank"] for name, part in hit["systems"].items()} == near.ranks
            assert {name: part["score"] for name, part in hit["systems"].items()} == pytest.approx(
                near.scores, abs=1e-5
            )
            if part := hit["systems"].get("bm25"):
                assert set(part["words"]) == set(near.texts[0].split()) & {"bad", "film"}
                assert sum(part["words"].values()) == pytest.approx(1)


@pytest.mark.parametrize("options", [{}, {"weights": "0.3,0.7"}, {"above": 0.5}])
def test_one_file_and_words_are_ranked_as_by_a_search(made: SimpleNamespace, options: dict[str, Any]) -> None:
    worker = open_worker(made.files["dense"], hybrid=True, **options)
    for query in ("bad film", "the plays", "good"):
        (expected,) = osbert.search(made.files["dense"], query, top=4, hybrid=True, **options)
        hits = answer(worker, query=query, k=4)[1]["results"][0]["hits"]
        assert [hit["line"] for hit in hits] == [near.line for near in expected.nearest]
        for hit, near in zip(hits, expected.nearest):
            cosine = hit["systems"].get("dense.npy", {}).get("score")
            assert cosine == (None if near.cosine is None else pytest.approx(near.cosine, abs=1e-6))


def test_a_reranker_comes_last_and_the_ranks_before_it_are_shown(made: SimpleNamespace) -> None:
    worker = open_worker(made.files["dense"], hybrid=True, rerank=str(made.ranker))
    (expected,) = osbert.search(made.files["dense"], "bad film", top=3, hybrid=True, rerank=str(made.ranker))
    hits = answer(worker, query="bad film")[1]["results"][0]["hits"]
    assert [(hit["line"], hit["rank_before"]) for hit in hits] == [(near.line, near.rank) for near in expected.nearest]
    assert [hit["score"] for hit in hits] == pytest.approx([near.score for near in expected.nearest], abs=1e-5)
    assert all("dense.npy" in hit["systems"] for hit in hits)
    assert [hit.get("truncated", 0) for hit in hits] == [near.unread for near in expected.nearest]


def test_one_request_cannot_have_a_reranker_read_more_than_400_texts(made: SimpleNamespace) -> None:
    worker = open_worker(made.files["dense"], rerank=str(made.ranker))
    for values, field in (
        ({"query": "bad", "k": 401}, "k"), ({"queries": ["bad"] * 5, "k": 1}, "queries"),
        ({"queries": ["bad"] * 3, "k": 200}, "queries"),
    ):  # fmt: skip
        status, reply = answer(worker, **values)
        assert (status, reply["error"]["field"]) == (413, field)
    assert answer(worker, query="bad", k=400)[0] == answer(worker, queries=["bad"] * 4)[0] == 200
    assert answer(open_worker(made.files["dense"]), queries=["bad"] * 5)[0] == 200


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *(("bits", "binary"), ("multi", "plaid"), ("multi", "plaid-2bit")),
        *(pytest.param("dense", backend, marks=pytest.mark.lab) for backend in ("faiss", "usearch")),
    ],
)
def test_approximate_searches_are_served_as_those_of_a_search(
    made: SimpleNamespace, tmp_path: Path, name: str, backend: str
) -> None:
    if name == "dense":
        pytest.importorskip(backend)
    path = shutil.copy(made.files["multi" if name == "multi" else "dense"], tmp_path)
    if name != "multi":
        path = tmp_path / "x.npz"
        dtype = "binary" if name == "bits" else "float32"
        osbert.embed(made.folders["dense"], made.lines, out=path, role="document", dtype=dtype)
    worker = open_worker(Path(path), backend=backend)
    hits = answer(worker, query="bad film", k=4)[1]["results"][0]["hits"]
    (expected,) = osbert.search(path, "bad film", top=4, backend=backend)
    assert [(hit["line"], hit["score"]) for hit in hits] == [
        (near.line, pytest.approx(near.score, abs=1e-6)) for near in expected.nearest
    ]


def test_a_reranker_alone_needs_no_fingerprint(made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed, fingerprint = [], vars(Folder)["fingerprint"].func

    def record(folder: Folder) -> str:
        hashed.append(folder.path.name)
        return fingerprint(folder)

    monkeypatch.setattr(Folder, "fingerprint", property(record))
    open_worker(made.files["dense"], also=(made.files["sparse"],), rerank=str(made.ranker))
    assert {*hashed} == {"dense", "sparse"}


def test_only_the_files_that_ranked_a_text_explain_it(made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_search, "DEPTH", 2)
    asked, explain = [], Finder.explain

    def record(finder: Finder, vectors: Any, chosen: Any) -> Any:
        asked.append([*chosen[0]])
        return explain(finder, vectors, chosen)

    monkeypatch.setattr(Finder, "explain", record)
    (found,) = osbert.search(made.files["dense"], "bad film", also=(made.files["sparse"], made.files["multi"]), top=2)
    for rows, name in zip(asked, ("dense.npy", "sparse.npz", "multi.npz"), strict=True):
        assert len(rows) == sum(name in near.ranks for near in found.nearest)
    assert any(len(near.ranks) < 3 for near in found.nearest)


def test_pairs_are_searched_by_pairs(made: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2\ngood,bad\nfilm,plays\n")
    osbert.embed(made.folders["dense"], tmp_path / "pairs.csv", out=tmp_path / "pairs.npy")
    worker = open_worker(tmp_path / "pairs.npy")
    (hit,) = answer(worker, query=["good", "bad"], k=1)[1]["results"][0]["hits"]
    assert (hit["line"], hit["text"], hit["pair"]) == (2, "good", "bad")
    status, reply = answer(worker, query="good")
    assert status == 422 and reply["error"]["field"] == "query"


@pytest.mark.parametrize(
    ("values", "status", "field"),
    [
        ({}, 422, "query"),
        ({"query": "bad", "queries": ["bad"]}, 422, "query"),
        ({"query": ""}, 422, "query"),
        ({"query": " \n"}, 422, "query"),
        ({"queries": ["bad", "\u200b"]}, 422, "queries[1]"),
        ({"query": ["bad", "film"]}, 422, "query"),
        ({"query": "bad", "k": 10**9}, 413, "k"),
        ({"queries": ["bad"] * 11, "k": 1000}, 413, "k"),
    ],
)
def test_bad_requests_are_refused_by_their_field(
    made: SimpleNamespace, values: dict[str, Any], status: int, field: str
) -> None:
    worker = open_worker(made.files["multi"] if values.get("queries", [""])[-1] != "\u200b" else made.files["dense"])
    if field == "queries[1]":  # a prompt has pieces, so only an empty text of a model without one has none
        values = {"queries": ["bad", " "]}
    reply = answer(worker, **values)
    assert reply[0] == status and reply[1]["error"]["field"] == field


def test_a_long_query_is_cut_and_this_is_said(made: SimpleNamespace) -> None:
    (result,) = answer(open_worker(made.files["dense"]), query="film " * 40, k=1)[1]["results"]
    assert result["truncated"] == 40 - (12 - 2 - 1) and len(result["hits"]) == 1


def test_files_that_cannot_be_searched_are_refused_before_the_server_answers(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    dense = made.files["dense"]
    with refusal("missing-file", "n.npy"):
        open_worker(tmp_path / "n.npy")
    with refusal("missing-option", "--hybrid"):
        read_searched(None, (), None, RankingOptions(hybrid=True))
    shutil.copy(dense, tmp_path / "alone.npy")
    with refusal("missing-file", "alone.rows.npz"):
        open_worker(tmp_path / "alone.npy")
    for name, ranking, code in (
        ("dense", {"backend": "plaid"}, "options-exclude-each-other"),
        ("dense", {"backend": "binary"}, "wrong-format"),
        ("sparse", {"backend": "usearch"}, "options-exclude-each-other"),
        ("dense", {"weights": "1,1"}, "missing-option"),
        ("dense", {"rerank": str(made.folders["dense"])}, "unsupported-model"),
        ("dense", {"role": "nobody"}, "invalid-value"),
    ):
        with refusal(code):
            open_worker(made.files[name], **ranking)
    for model, also, code, path in (
        (made.ranker, (), "mismatched-base", "dense.npy"),
        (None, (_embed(made, tmp_path, "other texts\n"),), "mismatched-base", "other.npz"),
        (None, (dense,), "duplicate-name", ""),
    ):
        with refusal(code, path):
            open_worker(dense, model=model, also=also)
    osbert.embed(made.folders["dense"], made.lines, out=tmp_path / "q.npz", role="query")
    with refusal("options-exclude-each-other", "q.npz", "query"):
        open_worker(tmp_path / "q.npz", role="document")


def _embed(made: SimpleNamespace, folder: Path, text: str) -> Path:
    (folder / "other.txt").write_text(text)
    osbert.embed(made.folders["sparse"], folder / "other.txt", out=folder / "other.npz", role="document")
    return folder / "other.npz"


def test_an_empty_file_and_texts_that_are_not_utf_8_are_refused(made: SimpleNamespace, tmp_path: Path) -> None:
    osbert.embed(made.folders["dense"], made.lines, out=tmp_path / "x.npz", role="document")
    with np.load(tmp_path / "x.npz") as opened:
        arrays = dict(opened)
    texts = arrays["text"].copy()
    texts[2] = 0xFF
    np.savez(tmp_path / "latin.npz", **arrays | {"text": texts})
    with refusal("damaged-file", "latin.npz", "utf-8"):
        open_worker(tmp_path / "latin.npz")
    empty = {name: array[:0] for name, array in arrays.items() if name != "settings"}
    np.savez(tmp_path / "empty.npz", **empty, settings=arrays["settings"])
    with refusal("no-data", "empty.npz"):
        open_worker(tmp_path / "empty.npz")


@pytest.mark.parametrize(("form", "hybrid"), [("npy", False), ("npz", True)])
def test_a_file_that_is_replaced_is_opened_again_and_a_half_written_one_is_not_searched(
    made: SimpleNamespace, tmp_path: Path, form: str, hybrid: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, path = tmp_path / "texts.txt", tmp_path / f"x.{form}"
    shutil.copy(made.lines, lines)
    osbert.embed(made.folders["dense"], lines, out=path, role="document")
    worker = open_worker(path, hybrid=hybrid)
    first = answer(worker, query="poor good actor", k=9)[1]
    lines.write_text("poor good actor\n" + lines.read_text())
    osbert.embed(made.folders["dense"], lines, out=path, role="document")
    reply = answer(worker, query="poor good actor", k=9)[1]
    assert (first["count"], reply["count"]) == (len(TEXTS), len(TEXTS) + 1)
    assert reply["results"][0]["hits"][0]["line"] == 1 and "opened again" in capsys.readouterr().err
    content = path.read_bytes()
    path.write_bytes(content[:-40] + bytes(40) if form == "npy" else content[: len(content) // 2])
    assert answer(worker, query="poor good actor")[0] == 503
    assert "x." in capsys.readouterr().err
    path.write_bytes(content)
    assert answer(worker, query="poor good actor", k=9)[1]["results"] == reply["results"]
    osbert.embed(made.folders["sparse"], lines, out=tmp_path / "x.npz", role="document", pooling="mean")
    if form == "npz":  # another model's: the one that was loaded must not embed its queries
        assert answer(worker, query="poor good actor")[0] == 503


def test_a_server_gives_the_hits_of_a_search_to_many_clients_at_once(
    made: SimpleNamespace, start: Callable[..., Any]
) -> None:
    dense, sparse = made.files["dense"], made.files["sparse"]
    serving = start("--vectors", str(dense), "--also", str(sparse), "--hybrid", "--wait", "1")
    queries = ["bad film", "the actor", "good", "plays . plays", "poor bad film"]
    expected = {row.query[0]: row for row in osbert.search(dense, queries, also=[sparse], hybrid=True, top=6)}

    def check(number: int) -> None:
        for step in range(4):
            query, top = queries[(number + step) % len(queries)], 3 + (number + step) % 4
            reply = serving.post("search", query=query, k=top)
            assert reply.status_code == 200, reply.text
            (result,) = reply.json()["results"]
            nearest = expected[query].nearest[:top]
            assert [hit["line"] for hit in result["hits"]] == [near.line for near in nearest]
            for hit, near in zip(result["hits"], nearest, strict=True):
                assert hit["score"] == pytest.approx(near.score, abs=1e-6)
                assert {name: part["rank"] for name, part in hit["systems"].items()} == near.ranks

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(check, range(32)))
    assert serving.metric('osbert_requests_total{path="/v1/search",status="200"') == 128
    assert [model["name"] for model in serving.client.get("/v1/models").json()["models"]] == ["dense"]
    assert serving.client.post("/v1/search", json={"query": "film " * 200_000}).status_code == 413
    for values, field in (({"query": "film " * 11_000}, "query"), ({"queries": ["a"] * 129}, "queries")):
        reply = serving.client.post("/v1/search", json=values)
        assert reply.status_code == 413 and reply.json()["error"]["field"] == field
    assert serving.client.post("/v1/search", json={"query": "a", "k": 0}).json()["error"]["field"] == "k"


def test_a_server_without_vectors_says_what_is_missing(made: SimpleNamespace) -> None:
    searched = read_searched(made.files["dense"], (), None, RankingOptions())
    assert searched
    worker = Worker(Orders(runs=include_folder([], searched.folder), device="cpu", opening=CAREFUL))
    status, reply = answer(worker, query="bad")
    assert status == 404 and "--vectors" in reply["error"]["message"]
