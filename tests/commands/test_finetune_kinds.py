"""Questions and choices from files to predictions: fine-tuned, evaluated, predicted, embedded, in one run folder."""

from __future__ import annotations

import csv
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osbert.commands.embed import VectorOptions, embed
from osbert.commands.evaluate import evaluate
from osbert.commands.finetune import finetune
from osbert.commands.predict import predict
from osbert.inference.engine import load
from osbert.training.tracking import read_lines
from refusals import refusal

SETTINGS = ("--learning-rate", "1e-2", "--precision", "fp32", "--log-every", "50", "--batch", "16")
MARKED = ("good", "fine", "bad", "poor")


def question(rng: random.Random, number: int, *, answered: bool) -> dict[str, Any]:
    """Return a paragraph whose one marked word answers "a film"; none has more than 30 words."""
    words = rng.choices(["film", "a", "the", "plays", "actor"], k=rng.randint(3, 30))
    place = rng.randrange(len(words))
    asked: dict[str, Any] = {"id": f"id-{number}", "question": "the film", "answers": []}
    if answered:
        words[place] = rng.choice(MARKED)
        asked["answers"] = [{"text": words[place], "answer_start": len(" ".join(words[:place])) + (place > 0)}]
    asked["is_impossible"] = not answered
    return {"context": " ".join(words), "qas": [asked]}


@pytest.fixture(scope="module")
def squad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder like SQuAD 2.0's; a third has no answer, and two answers do not stand where they are said to."""
    folder, rng = tmp_path_factory.mktemp("squad"), random.Random(0)
    for split, count in (("train", 160), ("dev", 60)):
        paragraphs = [question(rng, number, answered=number % 3 > 0) for number in range(count)]
        if split == "train":
            paragraphs[1]["qas"][0]["answers"][0]["answer_start"] = -1
            paragraphs[2]["qas"][0]["answers"][0]["text"] = "cinema"
        data = {"version": "v2.0", "data": [{"title": "x", "paragraphs": paragraphs}]}
        (folder / f"{split}.json").write_text(json.dumps(data))
    return folder


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory, encoder: Path, squad: Path) -> Path:
    out = tmp_path_factory.mktemp("runs") / "squad"
    finetune("span", *SETTINGS, "--epochs", "10", "--stride", "6", model=encoder, data=squad, out=out)
    return out


def metrics(run: Path) -> dict[str, float]:
    return json.loads((run / "run.json").read_text())["finished"]["best"]["metrics"]


def test_a_run_that_answers_questions(answering: Path, squad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = metrics(answering)
    assert best["best_f1"] > 0.8 and {"has_answer_f1", "no_answer_exact", "best_exact_threshold"} <= set(best)
    remarks = (answering / "remarks.txt").read_text().splitlines()
    assert (
        len(remarks) == 2 and "qas[0] (id id-1): the answer" in remarks[0] and "'cinema' does not occur" in remarks[1]
    )
    table = tomllib.loads((answering / "recipe.toml").read_text())["span"]
    assert table["unanswerable"] == "yes" and table["threshold"] == best["best_f1_threshold"] != 0
    evaluate(answering, data=squad)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    for name, value in best.items():
        assert [name, f"{value:.4f}"] in said  # what is told of the run is what it does
    epochs = [line for line in read_lines(answering / "metrics.jsonl") if "epoch" in line]
    assert all(line["dev.f1"] == pytest.approx(line["dev.best_f1"]) for line in epochs)
    assert epochs[0]["dev.f1"] > epochs[0]["dev.untuned_f1"]


def test_the_same_command_again_keeps_the_threshold(answering: Path, squad: Path, encoder: Path) -> None:
    before = (answering / "recipe.toml").read_text()
    finetune("span", *SETTINGS, "--epochs", "10", "--stride", "6", model=encoder, data=squad, out=answering)
    assert (answering / "recipe.toml").read_text() == before


def test_one_question(answering: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paragraph = "a film the actor plays " * 8 + "fine film a"
    predict(answering, "the film", paragraph)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fine" and lines[1].split()[1] == "fine" and lines[1].split()[0].endswith("%")
    (answer,) = load(answering).predict([("the film", paragraph)])
    assert paragraph[answer.chosen.start : answer.chosen.end] == answer.value == "fine"  # type: ignore[attr-defined]
    with refusal("wrong-number-of-texts", "1"):
        predict(answering, "the film")


def test_files_of_questions(answering: Path, squad: Path, tmp_path: Path) -> None:
    dev = squad / "dev.json"
    predict(answering, file=dev, out=tmp_path / "official.json")
    official = json.loads((tmp_path / "official.json").read_text())
    golds = {
        asked["id"]: [answer["text"] for answer in asked["answers"]] or [""]
        for paragraph in json.loads(dev.read_text())["data"][0]["paragraphs"]
        for asked in paragraph["qas"]
    }
    assert list(official) == list(golds)
    # Official scores pass over articles, which may stand before the word.
    words = {key: " ".join(word for word in said.split() if word not in ("a", "the")) for key, said in official.items()}
    hits = np.mean([words[key] in true for key, true in golds.items()])
    assert hits == pytest.approx(metrics(answering)["best_f1"])
    predict(answering, file=dev, out=tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["prediction"] for row in rows] == list(official.values())
    assert list(rows[0]) == ["id", "question", "prediction", "probability", "start", "end", "truncated"]
    (tmp_path / "in.jsonl").write_text(
        json.dumps({"question": "the film", "context": "a good film"})
        + "\n"
        + json.dumps({"question": "", "context": ""})
    )
    predict(answering, file=tmp_path / "in.jsonl", out=tmp_path / "out.jsonl")
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert first["context"][first["start"] : first["end"]] == first["prediction"] == "good"
    assert sum(one["probability"] for one in first["candidates"]) == pytest.approx(1)
    assert second["prediction"] is None


def test_questions_are_called_by_their_ids(answering: Path, tmp_path: Path) -> None:
    ids = ["x", "7", "", "y"]
    lines = "".join(f"{one},the film,a good film\n" for one in ids)
    (tmp_path / "in.csv").write_text("QID,question,context\n" + lines)
    predict(answering, file=tmp_path / "in.csv", out=tmp_path / "official.json")
    assert [*json.loads((tmp_path / "official.json").read_text())] == ["x", "7", "4", "y"]
    (tmp_path / "in.csv").write_text("QID,question,context\n" + lines + "y,the film,a film\n4,,\n")
    with refusal("duplicate-name", tmp_path / "in.csv") as error:
        predict(answering, file=tmp_path / "in.csv", out=tmp_path / "again.json")
    lines = str(error.value).splitlines()[1:]
    for said, line, other, key in zip(lines, (6, 7), (5, 4), ("y", "4"), strict=True):
        assert all(value in said for value in (f"in.csv, line {line}", f"'{key}'", f"in.csv, line {other}"))
    assert not (tmp_path / "again.json").exists()
    predict(answering, file=tmp_path / "in.csv", out=tmp_path / "out.csv")  # where every row keeps its place
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 7
    asked = [{"id": "z", "question": "the film"}] * 2
    official = {"data": [{"paragraphs": [{"context": "a good film", "qas": asked}]}]}
    (tmp_path / "in.json").write_text(json.dumps(official))
    with refusal("duplicate-name", "1", "z", "0"):
        predict(answering, file=tmp_path / "in.json", out=tmp_path / "again.json")


def test_vectors_of_a_run_that_answers(answering: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("question,context\nthe film,a good film\n")
    embed(answering, tmp_path / "in.csv", out=tmp_path / "out.npz", vectors=VectorOptions(pooling="cls"))
    with np.load(tmp_path / "out.npz") as found:
        assert found["vectors"].shape == (1, 16)


def test_it_opens_as_their_question_answering(answering: Path) -> None:
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    tokenizer, model = (kind.from_pretrained(answering) for kind in (AutoTokenizer, AutoModelForQuestionAnswering))
    inputs = tokenizer("the film", "a good film", return_tensors="pt")
    said = model.eval()(**inputs)
    first, last = int(said.start_logits.argmax()), int(said.end_logits.argmax())
    assert tokenizer.decode(inputs["input_ids"][0, first : last + 1]) == "good"


def test_questions_in_a_table(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paragraphs = [f"{one} film {other}" for one in MARKED for other in MARKED]
    rows = [f"the film,{paragraph},{paragraph.split()[-1]}\n" for paragraph in paragraphs]
    (tmp_path / "own.csv").write_text("question,context,answer\n" + "".join(rows))
    finetune("span", *SETTINGS, "--epochs", "1", model=encoder, data=tmp_path / "own.csv", out=tmp_path / "run")
    assert "mended" not in capsys.readouterr().out and not (tmp_path / "run" / "remarks.txt").exists()
    evaluate(tmp_path / "run", data=tmp_path / "own.csv")
    assert "exact" in capsys.readouterr().out
    predict(tmp_path / "run", "the film", "bad actor")
    assert capsys.readouterr().out.splitlines()[0] in "bad actor"
