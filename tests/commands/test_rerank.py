"""A reranker through the commands: trained, scored, at work on files of both forms, and exported."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

import osbert
import tiny_runs
from osbert.commands.evaluate import evaluate
from osbert.commands.export import export
from osbert.commands.finetune import finetune
from osbert.commands.predict import predict


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that learnt that what has "good" in it is relevant."""
    place = tmp_path_factory.mktemp("rerank")
    rng = random.Random(0)
    others = [word for word in tiny_runs.WORDS if word.isalpha() and word != "good"]
    (place / "data").mkdir()
    for split, count in (("train", 60), ("dev", 10)):
        rows = []
        for number in range(count):
            texts = [" ".join(rng.choices(others, k=3)) for _ in range(3)]
            documents = [*texts, f"good {texts[0]}"] if number else texts  # the first has no relevant one
            rng.shuffle(documents)
            labels = [int("good" in text) for text in documents]
            rows.append({"query": f"play {number}", "documents": documents, "labels": labels})
        lines = (json.dumps(row) + "\n" for row in rows)
        (place / "data" / f"{split}.jsonl").write_text("".join(lines))
    encoder = tiny_runs.write_run(place / "encoder", None)
    settings = ("--epochs", "6", "--batch", "8", "--learning-rate", "0.01", "--precision", "fp32")
    finetune("rerank", *settings, model=encoder, data=place / "data", out=place / "run")
    return place / "run"


def test_it_learns_and_is_scored(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(run, data=run.parent / "data")
    said = capsys.readouterr().out.split("\n")
    scores = dict(line.split() for line in said if len(line.split()) == 2)
    assert float(scores["ndcg@10"]) > 0.95 and float(scores["mrr@10"]) > 0.95 and float(scores["map"]) > 0.95
    where = next(place for place, line in enumerate(said) if "no relevant candidate" in line)
    assert said[where + 1].split() == ["9", "1"]


def test_pairs_come_out_row_by_row(run: Path, tmp_path: Path) -> None:
    given, out = tmp_path / "pairs.csv", tmp_path / "ranked.csv"
    given.write_text("id,query,passage\n1,play,bad film\n2,play,a good film\n3,actor,good\n")
    predict(run, file=given, out=out)
    rows = [*csv.DictReader(out.read_text().splitlines())]
    assert [(row["id"], row["rank"]) for row in rows] == [("1", "2"), ("2", "1"), ("3", "1")]
    (said,) = osbert.load(run).predict([("play", "bad film", "a good film")])
    assert [float(row["score"]) for row in rows[:2]] == pytest.approx(said.value, abs=1e-5)
    assert [*rows[0]] == ["id", "query", "passage", "score", "probability", "rank", "truncated"]


def test_lists_come_out_ranked_and_an_export_ranks_alike(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = tmp_path / "lists.jsonl", tmp_path / "ranked.jsonl"
    given.write_text(json.dumps({"query": "play", "documents": ["bad film", "a good film"]}) + "\n")
    export(run, to="onnx", out=tmp_path / "exported")
    found = []
    for folder in (run, tmp_path / "exported"):
        predict(folder, file=given, out=out)
        found.append(json.loads(out.read_text())["prediction"])
        out.unlink()
    assert [[one["index"] for one in ranked] for ranked in found] == [[1, 0], [1, 0]]
    assert found[0][0]["score"] == pytest.approx(found[1][0]["score"], abs=1e-4)
    capsys.readouterr()
    predict(run, "play", "bad film", "a good film")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("   1.") and first.endswith("[1]  a good film") and second.endswith("[0]  bad film")
