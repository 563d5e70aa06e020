"""ALBERT and GPT-2 from text to a task: pretrained by recipe, opened by transformers, fine-tuned, exported, served."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import corpora
import osbert
from osbert.commands.export import export
from osbert.commands.finetune import finetune
from osbert.server.calls.models import ModelFolder
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker
from terminal import run
from vocabularies import train

KINDS = {"good": "pos", "fine": "pos", "bad": "neg", "poor": "neg"}
WORDS = ["film", "play", "actor", "the", "a", "was", "and"]
RECIPES = {"albert-small": "AlbertForPreTraining", "gpt-small": "GPT2LMHeadModel"}
SMALL = ("--layers", "2", "--width", "16", "--heads", "2", "--model.length", "24", "--data.length", "24")
STEPS = ("--batch", "16", "--steps", "30", "--log-every", "10", "--device", "cpu", "--precision", "fp32")
QUICK = ("--epochs", "6", "--batch", "8", "--learning-rate", "1e-2", "--device", "cpu", "--precision", "fp32")


def sentence(rng: random.Random) -> tuple[str, str]:
    """Return a sentence and its label, which its first word decides."""
    word = rng.choice(list(KINDS))
    return " ".join([word, *rng.choices(WORDS, k=rng.randint(2, 6))]), KINDS[word]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(0)
    lines = [". ".join(sentence(rng)[0] for _ in range(6)) + "." for _ in range(60)]
    return corpora.build_corpus(folder, lines, train(lines, vocabulary=80))


@pytest.fixture(scope="module", params=["albert-small", pytest.param("gpt-small", marks=pytest.mark.lab)])
def encoder(request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("encoders") / request.param
    narrow = ("--embedding", "8") if request.param == "albert-small" else ()
    assert run("pretrain", request.param, *SMALL, *narrow, *STEPS, "--corpus", corpus, "--out", out) == 0
    return out


def test_the_recipe_pretrains_what_transformers_opens(encoder: Path) -> None:
    config = json.loads((encoder / "config.json").read_text())
    assert config["architectures"] == [RECIPES[encoder.name]]
    last = [json.loads(line) for line in (encoder / "metrics.jsonl").read_text().splitlines()][-1]
    assert 0 < last["held_out.loss"] < 8
    model, report = getattr(transformers, RECIPES[encoder.name]).from_pretrained(encoder, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    text = "good film play"
    with torch.no_grad():
        inputs = tokenizer(text, return_tensors="pt")
        names = ("input_ids", "token_type_ids") if encoder.name == "albert-small" else ("input_ids",)
        hidden = model.base_model.eval()(**{name: inputs[name] for name in names}).last_hidden_state[0]
    ours = osbert.load(encoder).embed([text], pooling="tokens")[0]
    np.testing.assert_allclose(ours, hidden.numpy(), rtol=0, atol=2e-5)


def test_a_shared_block_is_stored_once_and_goes_on_training(encoder: Path, corpus: Path, tmp_path: Path) -> None:
    backbone = osbert.load(encoder).learner.backbone
    assert len(backbone.blocks) == (1 if encoder.name == "albert-small" else 2)
    more = ("--from", encoder, *STEPS, "--steps", "2")
    assert run("pretrain", *more, "--corpus", corpus, "--out", tmp_path / "more") == 0


def test_a_task_on_it_is_predicted_exported_and_served(encoder: Path, tmp_path: Path) -> None:
    rng, tuning = random.Random(1), "full" if encoder.name == "albert-small" else "lora"  # each once: an export is slow
    rows = [",".join(sentence(rng)) for _ in range(120)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    finetune("classify", *QUICK, "--tuning", tuning, model=encoder, data=tmp_path / "rows.csv", out=tmp_path / "run")
    texts = [sentence(rng)[0] for _ in range(20)]
    found = osbert.load(tmp_path / "run").predict(texts)
    if tuning == "full":
        assert np.mean([one.value == KINDS[text.split()[0]] for one, text in zip(found, texts)]) > 0.9
    export(tmp_path / "run", to="onnx", out=tmp_path / "onnx")  # which compares the two on the development rows
    exported = osbert.load(tmp_path / "onnx").predict(texts)
    probabilities = ([[*one.probabilities.values()] for one in several] for several in (exported, found))
    np.testing.assert_allclose(*probabilities, rtol=0, atol=2e-5)
    worker, now = Worker(Orders(runs=[ModelFolder("run", tmp_path / "run")], device="cpu")), time.monotonic()
    assert not worker.take_in([Dispatch(1, "predict", {"texts": texts[:1]}, now, now + 60)])
    assert worker.work().answers[0].status == 200


def test_layers_that_share_a_block_cannot_be_frozen_apart(encoder: Path, tmp_path: Path) -> None:
    if encoder.name != "albert-small":
        pytest.skip("its blocks are its layers' own")
    (tmp_path / "rows.csv").write_text("text,label\n" + "good film,pos\nbad film,neg\n" * 20)
    settings = ("finetune", "classify", *QUICK, "--frozen", "1", "--model", encoder, "--data", tmp_path / "rows.csv")
    assert run(*settings, "--out", tmp_path / "run") == 1
