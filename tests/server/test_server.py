"""osbert serve: what it answers is what the engine says, for every kind; what it refuses it refuses with the field."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from osbert.commands.predict import predict
from osbert.inference.engine import load
from osbert.tasks import Prediction

TEXTS = ["a good film", "the poor actor plays a bad film .", "fine"]
PARAGRAPH = "the actor plays . a good film ! " * 12


def refusal(response: httpx.Response) -> tuple[int, str, str]:
    """Return the status, the field and the message of a refusal."""
    error = response.json()["error"]
    return response.status_code, error.get("field", ""), error["message"]


def test_the_models_are_told(server: Any) -> None:
    models = {model["name"]: model for model in server.client.get("/v1/models").json()["models"]}
    assert models["classifier"] == {
        "name": "classifier", "kind": "classify", "labels": ["neg", "pos"], "fields": ["text"], "length": 24,
        "explains": True, "writes": False, "columns": ["text"],
    }  # fmt: skip
    assert models["pairs"]["fields"] == ["text", "other"] and models["pairs"]["columns"] == ["one", "two"]
    assert models["number"]["range"] == [1, 5]
    assert models["reader"] == {
        "name": "reader", "kind": "span", "fields": ["question", "paragraph"], "length": 24, "explains": True,
        "writes": False,
    }  # fmt: skip
    assert models["sentences"] == {
        "name": "sentences", "kind": "encoder", "fields": ["text"], "length": 12, "pooling": "weighted",
        "explains": False, "writes": False, "by_name": "classes",
    }  # fmt: skip
    kinds = [models[name]["kind"] for name in ("number", "tagger", "pretrained", "encoder")]
    assert kinds == ["regress", "tag", "pretraining", "encoder"]
    for path, status in (("/health", "alive"), ("/ready", "ready")):
        assert server.client.get(path).json() == {"status": status}
    for path in ("/health", "/ready", "/", "/v1/models", "/v1/models/reader", "/openapi.json"):
        whole, head = server.client.get(path), server.client.head(path)  # as balancers ask
        assert head.status_code == 200 and head.content == b""
        assert head.headers["content-length"] == str(len(whole.content))
    assert [server.client.head(path).status_code for path in ("/v1/models/none", "/v1/embed")] == [404, 405]


def predicted(runs: dict[str, Path], name: str, texts: Any) -> list[Prediction]:
    return load(runs[name]).predict(texts)


def test_labels_are_the_engines(server: Any, runs: dict[str, Path]) -> None:
    answer = server.post("predict", texts=TEXTS, pieces=True).json()
    assert answer["model"] == "classifier"  # the first that can
    for one, said in zip(answer["predictions"], predicted(runs, "classifier", TEXTS), strict=True):
        assert one["label"] == said.value
        assert one["probabilities"] == pytest.approx(dict(said.probabilities), abs=1e-6)
        assert "windows" not in one
    assert answer["pieces"][0] == [["[CLS]", "a", "good", "film", "[SEP]"]]


def test_several_labels_are_the_engines(server: Any, runs: dict[str, Path]) -> None:
    answer = server.post("predict", model="labeller", texts=TEXTS).json()
    for one, said in zip(answer["predictions"], predicted(runs, "labeller", TEXTS), strict=True):
        assert one == {"labels": list(said.value), "probabilities": pytest.approx(dict(said.probabilities), abs=1e-6)}


def test_pairs_and_numbers(server: Any, runs: dict[str, Path]) -> None:
    pairs = [("a film", "a good film"), ("the actor", "plays")]
    answer = server.post("predict", model="pairs", texts=pairs).json()["predictions"]
    assert [one["label"] for one in answer] == [said.value for said in predicted(runs, "pairs", pairs)]
    answer = server.post("predict", model="number", texts=TEXTS).json()["predictions"]
    expected = [said.value for said in predicted(runs, "number", TEXTS)]
    assert [one["value"] for one in answer] == pytest.approx(expected, abs=1e-5)


@pytest.mark.lab
def test_choices(server: Any, runs: dict[str, Path]) -> None:
    rows = [("the actor", "plays", "a bad film"), ("a", "film .", "good")]
    records = [dict(zip(("start", "a", "b"), row)) for row in rows]
    models = {model["name"]: model for model in server.client.get("/v1/models").json()["models"]}
    assert models["chooser"]["fields"] == ["start", "a", "b"]
    answer = server.post("predict", records=records, model="chooser").json()["predictions"]
    said = predicted(runs, "chooser", rows)
    assert [one["choice"] for one in answer] == [int(one.value) - 1 for one in said]
    assert answer[0]["probabilities"] == pytest.approx(list(said[0].probabilities.values()), abs=1e-6)
    other = [{"context": context, "choices": choices} for context, *choices in rows]
    assert server.post("predict", records=other, model="chooser").json()["predictions"] == answer
    assert "there is no 'start' in it" in refusal(server.post("predict", records=[{}], model="chooser"))[2]
    assert refusal(server.post("predict", records=[{"start": "a", "a": "b"}], model="chooser"))[:2] == (
        422, "records[0]",
    )  # fmt: skip


def test_windows_are_told_where_the_run_reads_in_windows(server: Any, runs: dict[str, Path]) -> None:
    text = "a good film . " * 12
    answer = server.post("predict", model="windows", texts=[text], pieces=True).json()
    (one,), (sequences,) = answer["predictions"], answer["pieces"]
    (said,) = predicted(runs, "windows", [text])
    assert [(pieces[0], pieces[-1]) for pieces in sequences] == [("[CLS]", "[SEP]")] * 3
    assert one["windows"] == 3 and one["probabilities"] == pytest.approx(dict(said.probabilities), abs=1e-6)
    status, field, message = refusal(server.post("predict", texts=["a", text]))
    assert (status, field) == (
        422,
        "texts[1]",
    ) and message == "The text is 26 pieces too long: the model reads 24 tokens."


def test_vectors(server: Any, runs: dict[str, Path]) -> None:
    for pooling in ("mean", "cls", "max"):
        answer = server.post("embed", model="encoder", texts=TEXTS, pooling=pooling).json()
        np.testing.assert_allclose(answer["vectors"], load(runs["encoder"]).embed(TEXTS, pooling=pooling), atol=1e-5)
    scaled = server.post("embed", texts=TEXTS, normalise=True).json()["vectors"]
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("long", [None, "truncate", "head+tail", "window"])
def test_vectors_of_long_texts_are_those_of_the_command(server: Any, runs: dict[str, Path], long: str | None) -> None:
    texts = ["a good film . " * 6, "film", "the poor actor film " * 20]
    options = {"long": long} if long else {}
    answer = server.post("embed", model="encoder", texts=texts, pieces=True, **options).json()
    expected = load(runs["encoder"]).embed(texts, **options)
    np.testing.assert_allclose(answer["vectors"], expected, atol=1e-5)
    read = [len(sequences[0]) - 2 for sequences in answer["pieces"]]
    assert read == [22, 1, 22]
    if long == "window":
        assert "truncated" not in answer and answer["windows"] == [len(sequences) for sequences in answer["pieces"]]
    else:
        assert answer["truncated"] == [24 - 22, 0, 80 - 22] and "windows" not in answer


def test_vectors_of_texts_that_fit_have_no_further_fields(server: Any) -> None:
    assert set(server.post("embed", model="encoder", texts=TEXTS).json()) == {"model", "vectors"}
    for model, most in (("encoder", 22), ("sentences", 10)):
        asked = {"model": model, "texts": ["film", "film " * (most + 5)], "long": "error"}
        refused = refusal(server.post("embed", **asked))
        assert refused == (422, "texts[1]", f"The text is 5 pieces too long: the model reads {most + 2} tokens.")
        assert server.post("embed", **asked | {"texts": ["film " * most]}).status_code == 200


def test_vectors_are_as_the_model_was_trained_for(server: Any, runs: dict[str, Path]) -> None:
    """Where a request says nothing, as where `osbert embed` is told nothing."""
    raw = load(runs["sentences"]).embed(TEXTS, pooling="weighted", normalize=False)
    own = server.post("embed", model="sentences", texts=TEXTS).json()["vectors"]
    np.testing.assert_allclose(own, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-5)
    cls = {"pooling": "cls", "normalize": False}
    asked = {"pooling": "cls", "normalise": False}
    other = server.post("embed", model="sentences", texts=TEXTS, **asked).json()["vectors"]
    np.testing.assert_allclose(other, load(runs["sentences"]).embed(TEXTS, **cls), atol=1e-5)
    assert server.post("embed", model="sentences", texts=["film " * 15]).json()["truncated"] == [5]
    plain = server.post("embed", model="encoder", texts=TEXTS).json()["vectors"]
    np.testing.assert_allclose(plain, load(runs["encoder"]).embed(TEXTS), atol=1e-5)


def test_masks_are_filled_as_transformers_fills_them(server: Any, runs: dict[str, Path]) -> None:
    import transformers

    texts = ["the [MASK] plays a good [MASK] .", "[MASK]"]
    fills = server.post("fill-mask", texts=texts, top=3).json()["fills"]
    assert [len(masks) for masks in fills] == [2, 1]
    pipeline = transformers.pipeline("fill-mask", model=str(runs["pretrained"]), top_k=3)
    for masks, expected in zip(fills, (pipeline(texts[0]), [pipeline(texts[1])])):
        for mask, other in zip(masks, expected, strict=True):
            assert [one["piece"] for one in mask] == [one["token_str"] for one in other]
            assert [one["probability"] for one in mask] == pytest.approx([one["score"] for one in other], abs=1e-5)
    assert refusal(server.post("fill-mask", texts=["[MASK]", "a film"]))[:2] == (422, "texts[1]")


def test_a_large_answer_is_whole(server: Any) -> None:
    """It is written in slices: one of 2 MB, in which every text has the same answer."""
    texts = ["[MASK] " * 22] * 128
    answer = server.post("fill-mask", texts=texts, top=16)
    assert answer.status_code == 200 and int(answer.headers["content-length"]) == len(answer.content) > 1_000_000
    fills = answer.json()["fills"]
    assert [len(masks) for masks in fills] == [22] * 128 and {len(mask) for masks in fills for mask in masks} == {16}


def test_answers(server: Any, runs: dict[str, Path]) -> None:
    question = "the film"
    for name in ("reader", "reader-of-all"):
        answer = server.post("answer", model=name, question=question, paragraph=PARAGRAPH, n_best=3).json()
        (said,) = predicted(runs, name, [(question, PARAGRAPH)])
        assert answer["windows"] > 1 and len(answer["n_best"]) == 3
        assert (answer["answer"] is None) == (said.value == "")
        if answer["answer"]:
            assert PARAGRAPH[answer["answer"]["start"] : answer["answer"]["end"]] == said.value
        for one, candidate in zip(answer["n_best"], said.candidates):  # type: ignore[attr-defined]
            assert one["text"] == candidate.text and one["probability"] == pytest.approx(
                candidate.probability, abs=1e-5
            )
    assert refusal(server.post("answer", question=" ", paragraph="a film"))[:2] == (422, "question")
    assert refusal(server.post("answer", question="film " * 20, paragraph="a film"))[:2] == (422, "question")


def test_entities(server: Any, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Start and end count characters of the text in Python, the server, the shell and both forms of a file."""
    texts = [*TEXTS, "  fine,good   film. the actor", PARAGRAPH]
    answer = server.post("tag", texts=[*texts, ""]).json()
    assert sum(map(len, answer["entities"])) > 3 and answer["windows"][-2] > 1 and answer["entities"].pop() == []
    in_python = predicted(runs, "tagger", texts)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for name in ("out.jsonl", "out.csv"):
        predict(runs["tagger"], file=tmp_path / "in.jsonl", out=tmp_path / name)
    lines = [json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with (tmp_path / "out.csv").open(newline="") as file:
        cells = [json.loads(row["prediction"]) for row in csv.DictReader(file)]
    capsys.readouterr()
    for number, (text, said) in enumerate(zip(texts, in_python, strict=True)):
        expected = [(one.start, one.end, one.type, one.text) for one in said.value]
        assert all(text[start:end] == spelt for start, end, _, spelt in expected)
        for found in (answer["entities"], lines, cells):
            assert [tuple(one.values())[:4] for one in map(in_order, found[number])] == expected
        predict(runs["tagger"], text)
        shown = capsys.readouterr().out
        assert all(f"{type_}  {spelt}  ({start}-{end})" in shown for start, end, type_, spelt in expected)
        ranges = load(runs["tagger"]).fine_tuned.record_of([text]).words
        assert [(ranges[one.start][0], ranges[one.end - 1][1]) for one in said.words] == [one[:2] for one in expected]


def in_order(entity: dict[str, Any]) -> dict[str, Any]:
    return {name: entity[name] for name in ("start", "end", "type", "text", "probability")}


@pytest.mark.parametrize(
    ("call", "asked", "expected"),
    [
        ("predict", {}, (422, "texts", "Send either texts or records, not both.")),
        ("predict", {"texts": []}, (422, "texts", "texts: List should have at least 1 item")),
        ("predict", {"texts": ["a", 3]}, (422, "texts[1]", "Input should be a valid string")),
        ("predict", {"texts": ["a"], "txt": 1}, (422, "txt", "there is no such field; there are")),
        ("predict", {"texts": ["a", " "]}, (422, "texts[1]", "There is nothing in it to read.")),
        ("predict", {"texts": [["a", "b"]]}, (422, "texts[0]", "fine-tuned on single texts, not pairs")),
        ("predict", {"texts": ["a"], "model": "pairs"}, (422, "texts[0]", "fine-tuned on pairs of texts")),
        ("predict", {"texts": ["a"], "model": "classifer"}, (404, "model", "Did you mean 'classifier'?")),
        ("predict", {"texts": ["a"], "model": "tagger"}, (422, "model", "The model tagger (tag) cannot predict")),
        ("predict", {"records": [{"a": "b"}]}, (422, "records", "reads texts, not records")),
        ("predict", {"texts": ["a"] * 129}, (413, "texts", "at most 128 texts, not 129")),
        ("predict", {"texts": ["a", "b" * 50_001]}, (413, "texts[1]", "at most 50,000 characters, not 50,001")),
        ("embed", {"texts": ["a"], "pooling": "sum"}, (422, "pooling", "'mean', 'max', 'weighted'")),
        ("embed", {"texts": ["a", " "]}, (422, "texts[1]", "There is nothing in it to read.")),
        ("embed", {"texts": ["a"], "long": "cut"}, (422, "long", "'window'")),
        ("fill-mask", {"texts": ["[MASK]"], "top": 0}, (422, "top", "greater than or equal to 1")),
        ("fill-mask", {"texts": ["[MASK] " * 20] * 128, "top": 100}, (413, "top", "50,000")),
        ("answer", {"question": "a"}, (422, "paragraph", "Field required")),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_field(
    server: Any, call: str, asked: dict[str, Any], expected: tuple[int, str, str]
) -> None:
    status, field, message = refusal(server.post(call, **asked))
    assert (status, field) == expected[:2] and expected[2] in message


def test_what_is_no_request_is_refused(server: Any) -> None:
    def post(content: bytes, **headers: str) -> httpx.Response:
        headers = {"content-type": "application/json", **{name.replace("_", "-"): one for name, one in headers.items()}}
        return server.client.post("/v1/predict", content=content, headers=headers)

    good = b'{"texts": ["a film"]}'
    assert post(good).status_code == 200
    for content in (b"", b"{", b'{"texts": ["\xff"]}', b'{"texts": ["\\ud800"]}', b"[" * 10_000, b"null"):
        assert refusal(post(content))[:2] == (422, "body"), content[:20]
    assert refusal(post(b'{"texts": ["' + b"a" * 1_000_000 + b'"]}'))[:2] == (413, "body")
    assert refusal(server.client.post("/v1/predict", content=iter([b" " * 600_000] * 2)))[0] == 415
    chunks = server.client.post(
        "/v1/predict", content=iter([b" " * 600_000] * 2), headers={"content-type": "application/json"}
    )
    assert refusal(chunks)[:2] == (413, "body")
    assert refusal(post(good, content_type="text/plain"))[0] == 415
    status, _, message = refusal(post(gzip.compress(good), content_encoding="gzip"))
    assert status == 415 and "gzip" in message and post(good, content_encoding="identity").status_code == 200
    assert refusal(post(good, x_deadline="soon"))[:2] == (422, "X-Deadline")
    assert refusal(post(good, x_deadline="1e-9"))[0] == 504
    assert refusal(server.client.get("/v1/predict"))[0] == 405
    assert refusal(server.client.get("/v1/nothing"))[0] == refusal(server.client.post("/v1/nothing"))[0] == 404
    assert server.client.get("/").headers["content-type"].startswith("text/html")
    assert server.client.get("/__init__.py").status_code == server.client.get("/../server.py").status_code == 404
    assert "access-control-allow-origin" not in post(good, origin="https://example.org").headers


@pytest.mark.lab
def test_a_late_answer_names_the_field_that_makes_it_shorter(server: Any) -> None:
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)  # so that the request has come whole, and its answer cannot
    try:
        late = server.client.post("/v1/generate", json={"texts": ["a film"]}, headers={"X-Deadline": "1"})
    finally:
        os.kill(worker, signal.SIGCONT)
    assert refusal(late)[:2] == (504, "most")


def test_it_tells_of_itself(server: Any) -> None:
    assert server.url.startswith("http://127.0.0.1:")  # nobody else's machine reaches it unless told
    before = server.metric("osbert_pass_items_sum")
    assert server.post("tag", texts=["a film", "an actor"]).status_code == 200
    assert server.metric("osbert_pass_items_sum") == before + 2
    assert server.metric('osbert_requests_total{path="/v1/tag",status="200"}') >= 1
    assert server.metric("osbert_queue_requests") == 0 and server.metric("osbert_workers_ready") == 1
    described = server.client.get("/openapi.json").json()
    assert set(described["paths"]) >= {"/v1/predict", "/v1/embed", "/v1/fill-mask", "/v1/answer", "/v1/tag", "/ready"}
    assert "429" in described["paths"]["/v1/predict"]["post"]["responses"]


def test_a_worker_that_dies_is_replaced(server: Any) -> None:
    (worker,) = server.workers()
    os.kill(worker, signal.SIGKILL)
    assert server.post("predict", texts=["a good film"]).status_code == 200  # accepted before the new one is ready
    assert server.metric("osbert_worker_deaths_total") == 1 and server.workers() != [worker]
    deadline = time.monotonic() + 20
    while server.client.get("/ready").status_code != 200:
        assert time.monotonic() < deadline
