"""Choices from files to predictions: fine-tuned, evaluated, predicted, embedded, in one run folder."""

from __future__ import annotations

import csv
import json
import random
import tomllib
from pathlib import Path

import pytest

from osbert.commands.embed import embed
from osbert.commands.evaluate import evaluate
from osbert.commands.finetune import finetune
from osbert.commands.predict import predict
from osbert.inference.engine import load
from osbert.interop.conversion import model_of, open_any, write_model_as
from osbert.interop.tokenizers import write_tokenizer
from osbert.runs.file_options import TextOptions
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.multiple_choice.choose import Choose
from refusals import refusal

SETTINGS = ("--learning-rate", "1e-2", "--precision", "fp32", "--log-every", "50", "--batch", "16")
MARKED = ("good", "fine", "bad", "poor")


def test_a_run_that_chooses(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(0)
    for split, count in (("train", 120), ("val", 40)):
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"])
            for _ in range(count):
                right = rng.randrange(4)
                endings = [f"{'good' if place == right else rng.choice(['bad', 'poor'])} film" for place in range(4)]
                writer.writerow(["the actor plays", "a", *endings, right])
    out = tmp_path / "run"
    finetune("choose", *SETTINGS, "--epochs", "4", "--micro-tokens", "64", model=encoder, data=tmp_path, out=out)
    assert json.loads((out / "run.json").read_text())["finished"]["best"]["metrics"]["accuracy"] > 0.9
    told = json.loads((out / "run.json").read_text())["finished"]["calibration"]
    assert tomllib.loads((out / "recipe.toml").read_text())["choose"]["temperature"] == told["temperature"] != 1
    assert "probabilities: temperature" in capsys.readouterr().out
    evaluate(out, data=tmp_path / "val.csv")
    assert "accuracy" in capsys.readouterr().out
    assert load(out).fine_tuned.temperature == told["temperature"]  # type: ignore[attr-defined]
    predict(out, "the actor plays", "a bad film", "a good film", "a poor film")
    assert capsys.readouterr().out.splitlines()[0] == "1"
    (tmp_path / "new.csv").write_text("sent1,sent2,ending0,ending1,ending2,ending3\nthe actor,a,bad,good film,poor,\n")
    predict(out, file=tmp_path / "new.csv", out=tmp_path / "out.csv")
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert (row["prediction"], row["choice"]) == ("1", "a good film")
    embed(out, tmp_path / "new.csv", out=tmp_path / "out.npz", reading=TextOptions(text="sent1", pair="ending1"))
    long = ("choose", *SETTINGS, "--epochs", "1", "--length", "8")
    with refusal("text-too-long", "train.csv", "2"):
        finetune(*long, "--long", "error", model=encoder, data=tmp_path, out=tmp_path / "none")
    with refusal("invalid-setting"):
        finetune(*long, "--long", "window", model=encoder, data=tmp_path, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_choices_in_json_lines(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"context": "a film", "choices": [one, "the actor", other][: 2 + number % 2], "label": number % 2}
        for number, (one, other) in enumerate((one, other) for one in MARKED for other in MARKED)
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    finetune("choose", *SETTINGS, "--epochs", "1", model=encoder, data=tmp_path / "own.jsonl", out=tmp_path / "run")
    evaluate(tmp_path / "run", data=tmp_path / "own.jsonl")
    assert "accuracy" in capsys.readouterr().out
    predict(tmp_path / "run", file=tmp_path / "own.jsonl")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(line["probabilities"]) for line in lines] == [2, 3] * 8
    assert all(line["choices"][int(line["prediction"])] == line["choice"] for line in lines)


def test_a_model_of_theirs_becomes_a_run(tmp_path: Path) -> None:
    import transformers

    tokenizer = Tokenizer([*SPECIALS, "the", "film", "good", "bad"])
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=24, **sizes)
    transformers.BertForMultipleChoice(config).save_pretrained(tmp_path)
    write_tokenizer(tokenizer, tmp_path, length=24)
    model = model_of(open_any(tmp_path))
    assert model.report.problems == () and model.task == Choose()
    write_model_as(model, tmp_path / "ours", "osbert")
    assert load(tmp_path / "ours").predict([("the film", "bad", "good")])[0].value in ("0", "1")
