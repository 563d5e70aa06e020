"""Tagging as a user does it: fine-tune, evaluate, predict, embed; its scores are seqeval's; features are made once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from seqeval.metrics import f1_score

import osbert
from osbert import recipe
from osbert.commands.embed import embed
from osbert.commands.evaluate import evaluate
from osbert.commands.finetune import finetune
from osbert.commands.predict import predict
from osbert.inference.engine import load
from osbert.models.heads.features import FrozenEncoder
from osbert.reading.tagged.schemes import EntitySpan, read_tags, write_tags
from osbert.runs.file_options import LabelledOptions
from refusals import refusal

QUICK = ("--epochs", "5", "--learning-rate", "1e-2", "--precision", "fp32", "--device", "cpu", "--batch", "8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of columns in which each word tells its tag."""
    folder = tmp_path_factory.mktemp("tagged")
    rng = random.Random(0)
    for split, count in (("train", 120), ("dev", 30)):
        lines = ["-DOCSTART- O", ""]
        for number in range(count):
            for _ in range(3):
                lines += rng.choice([["actor I-PER"], ["good I-WORK", "film I-WORK"], ["poor O"]])
                lines += rng.choice([["the O"], ["bad O", "a O"], [". O"]])
            lines += [""] + ["-DOCSTART- O", ""] * (number % 3 == 0)
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, encoder: Path, data: Path) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tagger"
    finetune("tag", *QUICK, "--context", "document", model=encoder, data=data, out=out)
    return out


def tags_of(lines: list[dict[str, object]]) -> list[list[str]]:
    """Return the tags of each sentence that written predictions spell, by their places in the text alone."""
    found = []
    for line in lines:
        begin = 0
        for sentence in line["text"].split("\n"):
            words = sentence.split(" ")
            starts = np.cumsum([begin, *(len(word) + 1 for word in words)]).tolist()
            spans = [
                EntitySpan(starts.index(one["start"]), starts.index(one["end"] + 1), one["type"])
                for one in line["prediction"]
                if begin <= one["start"] < starts[-1]
            ]
            found.append(write_tags(spans, len(words), "bio"))
            begin = starts[-1]
    return found


def test_scores_are_seqevals_on_the_written_predictions(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = json.loads((run / "run.json").read_text())["finished"]["best"]["metrics"]
    assert best["f1"] > 0.9 and best["f1/PER"] > 0.9 and set(best) >= {"precision", "recall", "macro_f1", "illegal"}
    evaluate(run, data=data / "dev.txt")
    said = " ".join(capsys.readouterr().out.split())
    assert f"f1 {best['f1']:.4f}" in said and f"recall/WORK {best['recall/WORK']:.4f}" in said
    predict(run, file=data / "dev.txt", out=tmp_path / "out.jsonl")
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for line in written:
        assert all(line["text"][one["start"] : one["end"]] == one["text"] for one in line["prediction"])
    sentences = (data / "dev.txt").read_text().replace("-DOCSTART- O\n\n", "").strip().split("\n\n")
    true = [[row.split()[1] for row in sentence.splitlines()] for sentence in sentences]
    assert f1_score(true, tags_of(written)) == pytest.approx(best["f1"])


def test_entities_by_characters_are_scored_as_predictions_for_raw_text(run: Path, tmp_path: Path) -> None:
    """A file of words is read by its own words ("good-film"), raw text by the tokenizer's ("good", "-", "film")."""
    sentences = [["the", "actor"], ["good-film", "."], ["a", "good", "film", "the", "actor-good"], ["poor-actor"]] * 5
    tags = [["O", "B-PER"], ["B-WORK", "O"], ["O", "B-WORK", "I-WORK", "O", "O"], ["B-PER"]] * 5
    columns = "\n\n".join("\n".join(map(" ".join, zip(*rows))) for rows in zip(sentences, tags))
    (tmp_path / "words.conll").write_text(columns + "\n")
    texts = [" ".join(words) for words in sentences]
    true = []
    for words, row in zip(sentences, tags):
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        starts = ends - [len(word) for word in words]
        true.append({(int(starts[one.start]), int(ends[one.end - 1]), one.type) for one in read_tags(row)})
    rows = [
        {
            "text": text,
            "entities": [{"start": start, "end": end, "label": type_} for start, end, type_ in sorted(spans)],
        }
        for text, spans in zip(texts, true)
    ]
    (tmp_path / "marked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    predicted = [{one[:3] for one in prediction.value} for prediction in load(run).predict(texts)]
    right = sum(len(spans & other) for spans, other in zip(predicted, true))
    f1 = 2 * right / (sum(map(len, predicted)) + sum(map(len, true)))
    assert osbert.evaluate(run, data=tmp_path / "marked.jsonl")["f1"] == pytest.approx(f1)
    assert osbert.evaluate(run, data=tmp_path / "words.conll")["f1"] != pytest.approx(f1)


def test_the_run_folder_serves_all_commands_and_opens_in_transformers(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recipe.read(run / "recipe.toml")["tag"]["types"] == ["PER", "WORK"]
    predict(run, "the actor plays a good film .")
    said = capsys.readouterr().out
    assert "PER  actor  (4-9)" in said and "WORK  good film  (18-27)" in said
    source = tmp_path / "texts.txt"
    source.write_text("the actor\na film\n")
    embed(run, source, out=tmp_path / "vectors.npz")
    with np.load(tmp_path / "vectors.npz") as arrays:
        assert arrays["vectors"].shape == (2, 16)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(run).eval()
    assert type(theirs).__name__ == "BertForTokenClassification"
    assert theirs.config.id2label[1] == "B-PER"
    engine = load(run)
    ids = torch.tensor([[engine.tokenizer.cls, *engine.tokenizer.encode("the actor").tolist(), engine.tokenizer.sep]])
    with torch.no_grad():
        assert theirs.config.id2label[int(theirs(ids).logits[0, 2].argmax())] == "B-PER"
    with refusal("unknown-setting", "--label"):
        evaluate(run, data=source, file=LabelledOptions(label="x"))


@pytest.mark.lab
def test_features_are_worked_out_once_and_a_crf_learns_on_them(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    encoded: list[int] = []
    genuine = FrozenEncoder._encode

    def counted(self: FrozenEncoder, batch: object) -> torch.Tensor:
        encoded.append(batch.tokens)
        return genuine(self, batch)

    monkeypatch.setattr(FrozenEncoder, "_encode", counted)
    out = tmp_path / "run"
    settings = ("--epochs", "2", "--learning-rate", "3e-3", "--features", "sum-all", "--decoder", "crf", "--legal")
    finetune("tag", *QUICK, *settings, model=encoder, data=data, out=out)
    said = capsys.readouterr().out
    assert "the encoder does not learn: its vectors are kept in" in said and "step " in said
    best = json.loads((out / "run.json").read_text())["finished"]["best"]["metrics"]
    assert best["f1"] > 0.9 and best["illegal"] == 0
    tokens = sum(encoded)
    assert not list(out.glob("features-*"))
    evaluate(out, data=data)
    assert f"{best['f1']:.4f}" in capsys.readouterr().out
    assert 0 < sum(encoded) - tokens < tokens / 3  # development rows alone; in two epochs each row was encoded once
    encoded.clear()
    once = (*settings, "--epochs", "1", "--seeds", "2")
    finetune("tag", *QUICK, *once, model=encoder, data=data, out=tmp_path / "seeds")
    assert sum(encoded) == tokens and not list((tmp_path / "seeds").rglob("features-*"))


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (("--tuning", "lora"), ("options-exclude-each-other", "--tuning lora")),
        (("--tuning", "adapters"), ("options-exclude-each-other", "--tuning adapters")),
        (("--frozen", "1"), ("options-exclude-each-other", "--frozen 1")),
        (("--recurrent", "1"), ("options-exclude-each-other", "--recurrent 1")),
    ],
)
def test_features_are_of_an_encoder_that_does_not_learn(
    encoder: Path, data: Path, tmp_path: Path, settings: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    with refusal(*refused):
        finetune("tag", *QUICK, "--features", "last", *settings, model=encoder, data=data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_other_task_can_share_an_encoder_that_does_not_learn(
    encoder: Path, data: Path, table: Path, tmp_path: Path
) -> None:
    own = ("--tag.data", str(data), "--classify.data", str(table), "--tag.features", "last")
    with refusal("options-exclude-each-other"):
        finetune("tag", "classify", *QUICK, *own, model=encoder, data=data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
