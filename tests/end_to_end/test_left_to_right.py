"""From text to a left-to-right classifier with recurrent layers, trained in a real process; and its direction."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import corpora
import osbert
from terminal import run
from vocabularies import train

KINDS = {"good": "pos", "fine": "pos", "bad": "neg", "poor": "neg"}
WORDS = ["film", "play", "actor", "the", "a", "was", "and"]
SMALL = ("--layers", "1", "--width", "16", "--heads", "2", "--model.length", "24", "--data.length", "24")
STEPS = ("--batch", "16", "--steps", "20", "--log-every", "5", "--long-share", "0", "--device", "cpu")


def sentence(rng: random.Random) -> tuple[str, str]:
    """Return a sentence and its label, which its first word decides: the last token has to remember it."""
    word = rng.choice(list(KINDS))
    return " ".join([word, *rng.choices(WORDS, k=rng.randint(2, 6))]), KINDS[word]


def process(*words: str | Path) -> str:
    """Run osbert in a process of its own and return what it says."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "osbert", *map(str, words)]
    run = subprocess.run(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout
    return run.stdout


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of 60 documents of six sentences."""
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(0)
    lines = [". ".join(sentence(rng)[0] for _ in range(6)) + "." for _ in range(60)]
    return corpora.build_corpus(folder, lines, train(lines, vocabulary=80))


def test_from_text_to_a_classifier_that_looks_left_only(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder, classifier, rows = tmp_path / "encoder", tmp_path / "classifier", tmp_path / "rows.csv"
    pretrain = ("pretrain", "bert-tiny", "--objectives", "left_to_right", *SMALL, *STEPS, "--corpus", corpus)
    assert run(*pretrain, "--out", encoder) == 1
    assert 'Set model.direction = "left_to_right"' in " ".join(capsys.readouterr().err.split())
    assert not encoder.exists()
    assert run(*pretrain, "--model.direction", "left_to_right", "--out", encoder) == 0
    config = json.loads((encoder / "config.json").read_text())
    assert config["is_decoder"] is True and config["architectures"] == ["BertLMHeadModel"]
    last = [json.loads(line) for line in (encoder / "metrics.jsonl").read_text().splitlines()][-1]
    assert 0 < last["held_out.left_to_right.loss"] < 6
    assert "left-to-right loss" in (encoder / "report.html").read_text()
    looks_left_only(encoder)

    rng = random.Random(1)
    with open(rows, "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *(sentence(rng) for _ in range(240))])
    quick = ("--epochs", "6", "--batch", "8", "--learning-rate", "1e-2", "--device", "cpu", "--precision", "fp32")
    process("finetune", "classify", "--recurrent", "1", *quick, "--model", encoder, "--data", rows, "--out", classifier)
    assert run("predict", classifier, "--file", rows, "--out", tmp_path / "said.jsonl") == 0
    capsys.readouterr()
    found = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert len(found) == 240 and np.mean([row["prediction"] == row["label"] for row in found]) > 0.95
    assert run("evaluate", classifier, "--data", rows) == 0
    accuracy = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "accuracy" in line]
    assert float(accuracy[0]) > 0.95
    engine = osbert.load(classifier)
    sizes = engine.learner.backbone.architecture
    assert (sizes.direction, sizes.recurrent) == ("left_to_right", 1) and not engine.remarks


def looks_left_only(encoder: Path) -> None:
    """What follows a token changes nothing in its vector; what stands for a text is its last one."""
    engine = osbert.load(encoder)
    texts = ["good film play", "good film actor"]
    one, other = engine.embed(texts, pooling="tokens")
    assert np.abs(one[:3] - other[:3]).max() < 1e-6 < np.abs(one[3] - other[3]).max()
    np.testing.assert_allclose(engine.embed(texts, pooling="cls"), np.stack([one[-1], other[-1]]), atol=1e-6)
    pooler = engine.learner.backbone.pooler
    pooled = np.tanh(one[-1] @ pooler.weight.detach().numpy().T + pooler.bias.detach().numpy())
    np.testing.assert_allclose(engine.embed(texts, pooling="pooler")[0], pooled, atol=1e-6)


def test_sentence_order_pretrains_beside_masks(corpus: Path, tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    both = ("--objectives", '["mlm", "sentence_order"]', "--sentence_order.swapped", "0.4")
    assert run("pretrain", "bert-tiny", *both, *SMALL, *STEPS, "--corpus", corpus, "--out", encoder) == 0
    last = [json.loads(line) for line in (encoder / "metrics.jsonl").read_text().splitlines()][-1]
    assert {"held_out.mlm.loss", "held_out.sentence_order.accuracy"} <= set(last)
    assert "Sentence order is right in" in (encoder / "report.html").read_text()
    assert osbert.load(encoder).embed(["good film"]).shape == (1, 16)
