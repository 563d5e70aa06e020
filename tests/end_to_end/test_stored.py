"""Folders of an earlier version (tests/stored) still open, and give the numbers that they gave then."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import osbert
from osbert.corpus.shards import Corpus
from terminal import run

STORED = Path(__file__).parents[1] / "stored"
TEXTS = (STORED / "texts.txt").read_text(encoding="utf-8").splitlines()
PRETRAIN = (
    "pretrain cpu --corpus corpus --layers 1 --width 16 --heads 2 --model.length 32 --data.length 32 --batch 8 "
    "--held_out 0.1 --precision fp32 --device cpu --learning_rate 3e-3 --evaluate_every 20 --log_every 10 "
    "--checkpoint_every 20"
)
FINETUNE = (
    "finetune classify --model encoder --data rows.csv --epochs 8 --batch 8 --learning_rate 1e-2 --dropout 0 "
    "--precision fp32 --device cpu --length 32 --out classify"
)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the stored folders, which is the current folder as it was then."""
    copy = tmp_path / "stored"
    shutil.copytree(STORED, copy)
    monkeypatch.chdir(copy)
    return copy


def test_the_corpus_is_read_and_pretrained_on(stored: Path) -> None:
    corpus = Corpus.open(stored / "corpus")
    corpus.verify()
    assert (corpus.documents, corpus.tokens) == (120, 7441)
    assert run("corpus", "show", "corpus") == 0
    assert run(*f"{PRETRAIN} --steps 2 --out new".split()) == 0
    assert json.loads((stored / "new/run.json").read_text())["tokens"] == 7441


def test_the_encoder_gives_its_vectors(stored: Path) -> None:
    vectors = osbert.load(stored / "encoder").embed(TEXTS, pooling="cls", layers=[-1, 0])
    np.testing.assert_allclose(vectors, np.load(stored / "vectors.npy"), atol=2e-5)


def test_the_fine_tuned_run_gives_its_predictions(stored: Path) -> None:
    engine = osbert.load(stored / "classify")
    with (stored / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for prediction, row in zip(engine.predict(TEXTS), rows, strict=True):
        assert prediction.value == row["prediction"]
        assert prediction.probabilities["good"] == pytest.approx(float(row["probability of good"]), abs=2e-5)
    assert run("evaluate", "classify", "--data", "rows.csv") == 0


def test_the_finished_runs_are_finished_and_unchanged(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command finds nothing left to do: the settings mean what they meant."""
    before = (stored / "classify/model.safetensors").read_bytes()
    assert run(*FINETUNE.split()) == 0
    assert (stored / "classify/model.safetensors").read_bytes() == before
    assert run(*f"{PRETRAIN} --steps 40 --out encoder".split()) == 0
    assert "is finished; nothing is left to do" in capsys.readouterr().out


def test_the_checkpoint_goes_on_from_its_step_to_the_same_weights(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*f"{PRETRAIN} --steps 40 --out stopped".split()) == 0
    output = capsys.readouterr().out
    assert "step 30/40" in output
    assert "step 10/40" not in output
    mine, theirs = (load_file(stored / run / "model.safetensors") for run in ("stopped", "encoder"))
    assert mine.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(mine[name], tensor, atol=1e-5, rtol=0)
