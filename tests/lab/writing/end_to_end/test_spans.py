"""From text to an encoder-decoder: pretrained on missing spans, stopped and resumed, written from, fine-tuned."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import corpora
import osbert
from interrupted import resume_bit_for_bit
from osbert.text.file_tokenizer import sentinel_ids, with_sentinels
from refusals import refusal
from vocabularies import train

SMALL: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "feedforward": 16,
    "model.length": 32,
    "data.length": 24,
    "batch": 8,
    "steps": 12,
    "log_every": 4,
    "checkpoint_every": 4,
    "evaluate_every": 6,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of 60 short documents."""
    lines = corpora.opinions()
    return corpora.build_corpus(tmp_path_factory.mktemp("texts"), lines, train(lines, vocabulary=60))


@pytest.fixture(scope="module")
def model(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pretrained encoder-decoder."""
    out = tmp_path_factory.mktemp("models") / "whole"
    osbert.pretrain("t5-mini", corpus=corpus, out=out, **SMALL)
    return out


def test_it_is_t5s_and_resumes_bit_for_bit(model: Path, corpus: Path, tmp_path: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("t5", ["T5ForConditionalGeneration"])
    last = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()][-1]
    assert 0 < last["held_out.spans.loss"] < 6
    resume_bit_for_bit("t5-mini", model, tmp_path / "stopped", 6, {"corpus": corpus, **SMALL})


def test_it_writes_from_a_source(model: Path) -> None:
    opened = osbert.load(model)
    alone = [opened.generate([text], most=5)[0] for text in ("good film", "the actor was bad and the play good")]
    together = opened.generate(["good film", "the actor was bad and the play good"], most=5)
    assert [one.text for one in together] == [one.text for one in alone]
    assert "".join(opened.stream("good film", most=5)) == alone[0].text
    assert opened.generate(["good film"], most=5, beams=3)[0].log_probability < 0


def test_others_start_and_end_its_texts_as_its_tokenizer_has_them(model: Path) -> None:
    opened = osbert.load(model)
    tokenizer = opened.tokenizer
    config = json.loads((model / "config.json").read_text())
    ids = ("bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id")
    assert [config[name] for name in ids] == [tokenizer.cls, tokenizer.pad, tokenizer.sep, tokenizer.sep]
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(model).eval()
    source = transformers.AutoTokenizer.from_pretrained(model)("the good film", return_tensors="pt").input_ids
    never = [tokenizer.pad, tokenizer.unknown, tokenizer.cls]  # the mask piece stands for the spans, and is written
    [row] = theirs.generate(input_ids=source, do_sample=False, max_new_tokens=6, suppress_tokens=never).tolist()
    [said] = opened.generate(["the good film"], most=6)
    wanted = [piece for piece in row[1:] if piece != tokenizer.sep]
    assert row[0] == tokenizer.sep and said.text.split() == tokenizer.decode(wanted).split()


@pytest.mark.parametrize("count", [0, 5], ids=["mask", "sentinels"])
def test_it_fills_the_gap_and_names_it_first(count: int, tmp_path: Path) -> None:
    foods = {"cat": "milk", "dog": "bones", "bird": "seeds", "horse": "hay"}
    lines = [f"the {animal} of my house eats {food}" for animal, food in foods.items()] * 60
    tokenizer = with_sentinels(train(lines, vocabulary=300), count)
    corpus = corpora.build_corpus(tmp_path, lines, tokenizer)
    deep = {"model.deviation": 0.2, "optimizer.learning_rate": 1e-2, "data.cross_documents": False}
    rare = {"steps": 120, "log_every": 60, "checkpoint_every": 120, "evaluate_every": 120}
    sizes = {"width": 32, "feedforward": 32, "batch": 32}
    osbert.pretrain("t5-mini", corpus=corpus, out=tmp_path / "model", **SMALL | sizes | rare | deep)
    sentinel = tokenizer.tokens(sentinel_ids(tokenizer)[:1])[0] if count else "[MASK]"
    model = osbert.load(tmp_path / "model")
    texts = [f"the {animal} of my house eats [MASK]" for animal in foods]
    assert [one.text for one in model.generate(texts, most=5)] == [f"{sentinel} {food}" for food in foods.values()]
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model").eval()
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    for text, food in zip(texts, foods.values(), strict=True):
        source = read(text.replace("[MASK]", sentinel), return_tensors="pt").input_ids
        [row] = theirs.generate(input_ids=source, do_sample=False, max_new_tokens=5).tolist()
        assert tokenizer.decode(row) == f"[SEP] {sentinel} {food} [SEP]"


def test_its_encoder_serves_the_tasks_there_are(model: Path, tmp_path: Path) -> None:
    settings = {"epochs": 1, "batch": 4, "device": "cpu", "precision": "fp32"}
    rows: dict[str, list[dict[str, Any]]] = {
        "classify": [{"text": f"{word} film", "label": word} for word in ("good", "bad")] * 8,
        "regress": [{"text": f"{word} film", "label": value} for word, value in (("good", 1.0), ("bad", 0.0))] * 8,
        "tag": [{"tokens": [word, "film"], "tags": ["B-X", "O"]} for word in ("good", "bad")] * 8,
        "choose": [{"context": "a film", "ending0": "good", "ending1": "bad", "label": place} for place in (0, 1)] * 8,
        "rerank": [{"query": f"{word} film", "document": ["good", "bad"], "label": [1, 0]} for word in ("a", "the")]
        * 8,
    }
    for kind, data in rows.items():
        osbert.finetune(kind, model=model, data=data, out=tmp_path / kind, **settings)
    said = osbert.load(tmp_path / "classify").predict(["good film"])[0]
    assert said.value in ("good", "bad")
    assert osbert.load(tmp_path / "choose").predict([("a film", "good", "bad")])[0].value in ("0", "1")
    assert len(osbert.load(tmp_path / "rerank").predict([("a film", "good", "bad")])[0].value) == 2
    assert osbert.load(model).embed(["good film", "bad"]).shape == (2, 16)


@pytest.mark.lab
def test_its_encoder_is_analysed_and_pieces_of_one_text_have_no_score(model: Path, tmp_path: Path) -> None:
    opened = osbert.load(model)
    assert opened.attention("good film").weights.shape[:2] == (1, 2)
    with refusal("unsupported-model"):
        opened.score(["good film"])
    (tmp_path / "texts.txt").write_text("\n\n".join(["the good film was bad", "the actor and the play"] * 10))
    found = osbert.analyse(model, data=tmp_path / "texts.txt", out=tmp_path / "analysis", shortest=2)
    assert {"heads", "geometry"} <= {*found.counts}
