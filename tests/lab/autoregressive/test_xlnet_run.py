"""From text to an XLNet: pretrained with and without memory, stopped and resumed, opened elsewhere, fine-tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

import corpora
import osbert
from interrupted import resume_bit_for_bit
from terminal import run
from vocabularies import train

SMALL: dict[str, Any] = {
    "layers": 2,
    "width": 16,
    "heads": 2,
    "model.length": 48,
    "data.length": 24,
    "batch": 8,
    "steps": 6,
    "log_every": 3,
    "checkpoint_every": 3,
    "evaluate_every": 3,
    "dropout": 0.1,
    "micro_tokens": 100,
    "device": "cpu",
    "precision": "fp32",
}
MEMORY = {"data.streams": True, "model.memory": 16, "micro_tokens": 0}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = corpora.invented()
    return corpora.build_corpus(tmp_path_factory.mktemp("texts"), texts, train(texts, vocabulary=120))


@pytest.fixture(scope="module", params=[{}, MEMORY], ids=["alone", "memory"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SMALL | request.param


@pytest.fixture(scope="module")
def model(settings: dict[str, Any], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "whole"
    osbert.pretrain("xlnet-small", corpus=corpus, out=out, **settings)
    return out


def test_it_is_xlnets_and_resumes_bit_for_bit(
    model: Path, settings: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    config = json.loads((model / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("xlnet", ["XLNetLMHeadModel"])
    last = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()][-1]
    assert 0 < last["held_out.permuted.loss"] < 6
    resume_bit_for_bit("xlnet-small", model, tmp_path / "stopped", 3, {"corpus": corpus, **settings})


def test_masks_are_filled_by_queries_and_others_open_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = osbert.load(model)
    text = "Bada kefe [MASK] logi."
    [fills] = opened.fill(text)
    assert len(fills) == 5 and run("predict", model, text, "--json") == 0
    *_, result = map(json.loads, capsys.readouterr().out.splitlines())
    assert result["fills"] == [[{"piece": one.piece, "probability": one.probability} for one in fills]]
    assert run("predict", model, "Bada kefe.", "--json") == 1
    assert json.loads(capsys.readouterr().err)["code"] == "not-a-model"
    ids = opened.tokenizer.encode("Bada kefe logi.")
    theirs = AutoModel.from_pretrained(model).eval()
    ids = torch.tensor([[opened.tokenizer.cls, *ids, opened.tokenizer.sep]])
    with torch.no_grad():
        expected = theirs(ids, token_type_ids=torch.zeros_like(ids)).last_hidden_state[0]
    states = torch.from_numpy(opened.embed(["Bada kefe logi."], pooling="tokens")[0])
    torch.testing.assert_close(states, expected, rtol=0, atol=2e-5)


def test_it_is_fine_tuned_on_every_form(model: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    if "model.memory" in settings:
        pytest.skip("its folder is as that without a memory")
    answer = {"text": ["kefe"], "answer_start": [5]}
    rows: dict[str, list[dict[str, Any]]] = {
        "classify": [{"text": f"{word} logi", "label": word} for word in ("bada", "kefe")] * 4,
        "tag": [{"tokens": [word, "logi"], "tags": ["B-X", "O"]} for word in ("bada", "kefe")] * 4,
        "choose": [{"context": "bada", "choices": ["kefe", "logi"], "label": number % 2} for number in range(8)],
        "span": [{"question": "kefe?", "context": f"bada kefe {n}", "answers": answer, "id": str(n)} for n in range(8)],
    }
    ends = ("ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice", "ForQuestionAnsweringSimple")
    given = {"epochs": 1, "batch": 4, "device": "cpu", "precision": "fp32"}
    for (kind, data), end in zip(rows.items(), ends, strict=True):
        osbert.finetune(kind, model=model, data=data, out=tmp_path / kind, **given)
        config = json.loads((tmp_path / kind / "config.json").read_text())
        assert config["architectures"] == [f"XLNet{end}"]
    more: dict[str, list[dict[str, Any]]] = {
        "regress": [{"text": f"{word} logi", "label": value} for word, value in (("bada", 1.0), ("kefe", 0.0))] * 4,
        "multilabel": [{"text": f"{word} logi", "labels": [word, "logi"]} for word in ("bada", "kefe")] * 4,
        "rerank": [{"query": f"{word} logi", "document": ["bada", "kefe"], "label": [1, 0]} for word in ("a", "mi")]
        * 4,
        "contrastive": [{"text": f"{word} logi", "text_pair": word} for word in ("bada", "kefe", "mi", "lo")] * 2,
    }
    for kind, data in more.items():
        osbert.finetune(kind, model=model, data=data, out=tmp_path / kind, **given)
    assert isinstance(osbert.load(tmp_path / "regress").predict(["bada logi"])[0].value, float)
    assert set(osbert.load(tmp_path / "multilabel").predict(["bada logi"])[0].value) <= {"bada", "kefe", "logi"}
    assert len(osbert.load(tmp_path / "rerank").predict([("a logi", "bada", "kefe")])[0].value) == 2
    assert osbert.load(tmp_path / "contrastive").embed(["bada logi", "kefe"]).shape == (2, 16)
    classifier = osbert.load(tmp_path / "classify")
    together, alone = classifier.predict(["bada logi", "kefe"]), classifier.predict(["bada logi"])
    assert together[0].value == alone[0].value
