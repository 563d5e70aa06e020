"""From text to a BART and to a MASS: pretrained, stopped and resumed, written from, fine-tuned to read and to write."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import corpora
import osbert
from interrupted import resume_bit_for_bit
from refusals import refusal

SMALL: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "feedforward": 16,
    "model.length": 48,
    "data.length": 24,
    "batch": 8,
    "steps": 8,
    "log_every": 4,
    "checkpoint_every": 4,
    "evaluate_every": 4,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of 60 short documents, of byte-level BPE."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text("\n".join(corpora.opinions()))
    osbert.train_tokenizer([folder / "text.txt"], out=folder / "vocabulary", kind="bpe", vocabulary=290)
    osbert.build_corpus(
        [folder / "text.txt"], tokenizer=folder / "vocabulary", out=folder / "corpus", documents="line", workers=1
    )
    return folder / "corpus"


@pytest.fixture(scope="module")
def model(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pretrained encoder-decoder."""
    out = tmp_path_factory.mktemp("models") / "whole"
    osbert.pretrain("bart-mini", corpus=corpus, out=out, **SMALL)
    return out


def test_it_is_barts_and_resumes_bit_for_bit(model: Path, corpus: Path, tmp_path: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bart", ["BartForConditionalGeneration"])
    assert (config["pad_token_id"], config["eos_token_id"], config["max_position_embeddings"]) == (1, 2, 48)
    last = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()][-1]
    assert 0 < last["held_out.denoise.loss"] < 6
    resume_bit_for_bit("bart-mini", model, tmp_path / "stopped", 4, {"corpus": corpus, **SMALL})


def test_it_writes_reads_and_is_fine_tuned_to_do_either(model: Path, tmp_path: Path) -> None:
    opened = osbert.load(model)
    texts = ["good film", "the actor was bad and the play good"]
    alone = [opened.generate([text], most=5)[0] for text in texts]
    assert [one.text for one in opened.generate(texts, most=5)] == [one.text for one in alone]
    assert opened.generate(["good film"], most=5, beams=3)[0].log_probability < 0
    assert opened.embed(["good film", "bad"]).shape == (2, 16)

    settings = {"epochs": 1, "batch": 4, "device": "cpu", "precision": "fp32"}
    rows: dict[str, list[dict[str, Any]]] = {
        "classify": [{"text": f"{word} film", "label": word} for word in ("good", "bad")] * 8,
        "tag": [{"tokens": [word, "film"], "tags": ["B-X", "O"]} for word in ("good", "bad")] * 8,
        "choose": [{"context": "a film", "ending0": "good", "ending1": "bad", "label": place} for place in (0, 1)] * 8,
        "rerank": [{"query": f"{word} film", "document": ["good", "bad"], "label": [1, 0]} for word in ("a", "the")]
        * 8,
        "generate": [{"source": f"{word} film", "target": word} for word in ("good", "bad")] * 8,
    }
    for kind, data in rows.items():
        tuning = "lora" if kind == "generate" else "full"
        osbert.finetune(kind, model=model, data=data, out=tmp_path / kind, tuning=tuning, **settings)
    config = json.loads((tmp_path / "classify" / "config.json").read_text())
    assert config["architectures"] == ["BartForSequenceClassification"]
    classifier = osbert.load(tmp_path / "classify")
    said, explained = classifier.predict(["good film"])[0], classifier.explain(["good film"])[0]
    odds = {label: math.log(share / (1 - share)) for label, share in said.probabilities.items()}
    assert explained.label == said.value and abs(explained.score - odds[said.value]) < 1e-5
    assert osbert.load(tmp_path / "choose").predict([("a film", "good", "bad")])[0].value in ("0", "1")
    assert len(osbert.load(tmp_path / "rerank").predict([("a film", "good", "bad")])[0].value) == 2
    with refusal("unsupported-model"):
        opened.score(["good film"])
    with refusal("missing-option", "--objectives"):
        osbert.adapt(model, ["good film"], out=tmp_path / "adapted")
    for folder in (model, tmp_path / "generate"):
        with refusal("not-exportable", "--to huggingface"):
            osbert.export(folder, out=tmp_path / "onnx", unchecked=True)
    assert osbert.load(tmp_path / "generate").generate(["good film"], most=3)[0].pieces <= 3
    tuned = load_file(tmp_path / "generate" / "tuned.safetensors")
    changed = {name.removesuffix(".lora_up") for name in tuned if name.endswith(".lora_up")}
    attentions = ("encoder.layer.0.attention", "decoder.layer.0.attention", "decoder.layer.0.crossattention")
    assert changed == {f"{one}.self.{name}.weight" for one in attentions for name in ("query", "value")}
    assert not any(name.startswith("decoder.layer.") and ".lora_" not in name for name in tuned)


def test_mass_learns_a_fragment_and_its_encoder_reads(corpus: Path, tmp_path: Path) -> None:
    osbert.pretrain("mass-mini", corpus=corpus, out=tmp_path / "model", **SMALL)
    last = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()][-1]
    assert 0 < last["held_out.fragment.loss"] < 6
    resume_bit_for_bit("mass-mini", tmp_path / "model", tmp_path / "stopped", 4, {"corpus": corpus, **SMALL})
    model = osbert.load(tmp_path / "model")
    assert model.generate(["good film"], most=3)[0].pieces <= 3
    assert model.embed(["good film", "bad"]).shape == (2, 16)
