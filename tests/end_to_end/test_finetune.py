"""osbert finetune in real processes: killed and repeated it ends in the same bits, and transformers opens the run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import osbert
from forked import start_osbert
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.text.tokenizer import SPECIALS, Tokenizer

KINDS = {"good": "pos", "fine": "pos", "bad": "neg", "poor": "neg"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny encoder and a table in which one word decides the label."""
    folder = tmp_path_factory.mktemp("inputs")
    tokenizer = Tokenizer([*SPECIALS, *KINDS, "film", "a", "the", "play", "##s"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        backbone = Architecture(layers=1, heads=2, width=16, vocabulary=len(tokenizer), length=24).build()
    write_model(Learner(backbone, {}), folder / "encoder")
    write_tokenizer(tokenizer, folder / "encoder", length=24)
    rng = random.Random(0)
    rows = [(f"the {' '.join(rng.choices(['film', 'a', 'plays'], k=6))} {word}", KINDS[word]) for word in KINDS] * 100
    lines = "".join(f"{text},{label}\n" for text, label in rows)
    (folder / "reviews.csv").write_text("text,label\n" + lines, encoding="utf-8")
    return folder


def command(*words: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "osbert", *map(str, words)]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def words(inputs: Path, out: Path) -> list[str]:
    files = ("--model", inputs / "encoder", "--data", inputs / "reviews.csv", "--out", out)
    exact = ("--precision", "fp32", "--device", "cpu", "--checkpoint-every", "7", "--log-every", "5")
    return [*map(str, ("finetune", "classify", *files, "--epochs", "6", "--learning-rate", "1e-2", *exact))]


def checkpoints(out: Path) -> list[Path]:
    return [path for path in (out / "checkpoints").glob("step-*") if path.suffix != ".unfinished"]


def test_killed_it_ends_in_the_same_bits_and_the_run_is_complete(inputs: Path, tmp_path: Path) -> None:
    calm, killed, log = tmp_path / "calm", tmp_path / "killed", tmp_path / "log"
    undisturbed = command(*words(inputs, calm))
    process = start_osbert(words(inputs, killed), log)
    deadline = time.monotonic() + 90
    while not checkpoints(killed) and time.monotonic() < deadline and process.is_alive():
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL and not (killed / "model.safetensors").exists()
    said, _ = undisturbed.communicate(timeout=120)
    assert undisturbed.returncode == 0, said
    again = start_osbert(words(inputs, killed), log)
    again.join(timeout=120)
    assert again.exitcode == 0 and "going on from step" in log.read_text(), log.read_text()
    assert (killed / "model.safetensors").read_bytes() == (calm / "model.safetensors").read_bytes()

    opened_by_transformers(calm)


@pytest.mark.lab
def test_killed_a_comparison_loses_no_finished_trial(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "compared"
    files = ("finetune", "classify", "--model", inputs / "encoder", "--data", inputs / "reviews.csv", "--out", out)
    seeds = ("--seeds", "2", "--epochs", "3", "--learning-rate", "1e-2", "--checkpoint-every", "7", "--device", "cpu")
    words, log = [*map(str, (*files, *seeds))], tmp_path / "log"
    first, second = out / "trials" / "seed-0", out / "trials" / "seed-1"
    process = start_osbert(words, log)
    deadline = time.monotonic() + 120
    while not checkpoints(second) and time.monotonic() < deadline and process.is_alive():
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL and not (out / "model.safetensors").exists()
    written = (first / "model.safetensors").stat().st_mtime_ns
    again = start_osbert(words, log)
    again.join(timeout=120)
    said = log.read_text()
    assert again.exitcode == 0 and "already finished" in said and "going on from step" in said, said
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    assert (second / "model.safetensors").exists() and osbert.load(out).predict(["good"])


def opened_by_transformers(run: Path) -> None:
    """Their classifier and tokenizer, from our folder, give our probabilities under our labels' names."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    texts = ["the good film", "a bad film plays"]
    tokenizer, model = AutoTokenizer.from_pretrained(run), AutoModelForSequenceClassification.from_pretrained(run)
    for text, ours in zip(texts, osbert.load(run).predict(texts)):
        with torch.no_grad():
            shares = model.eval()(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].numpy()
        assert list(model.config.id2label.values()) == list(ours.probabilities)
        np.testing.assert_allclose(shares, list(ours.probabilities.values()), atol=2e-5)
