"""GPT and GPT-2 folders as transformers writes them: embedded, pretrained further, fine-tuned as GPT is, exported."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import osbert
from family_tokenizers import GPTS, LEARNT
from osbert.data.batch import collate
from osbert.interop.huggingface.folders import write_model
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.objectives.left_to_right import LeftToRight
from osbert.runs.finetune.model import read_model
from osbert.runs.finetune.settings import FinetuneSettings
from osbert.server.calls.models import ModelFolder
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker
from osbert.text.file_tokenizer import MARKS
from refusals import refusal
from terminal import run

CLASSES = {"gpt": "OpenAIGPT", "gpt2": "GPT2"}
SIZES = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 48}
QUICK = {"epochs": 2, "batch": 8, "learning_rate": 1e-3, "device": "cpu", "precision": "fp32", "log_every": 1}
KINDS = {"good": "pos", "fine": "pos", "bad": "neg", "poor": "neg"}


@pytest.fixture(scope="module", params=GPTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpts") / request.param
    GPTS[request.param](path)
    begin = CLASSES[request.param]
    torch.manual_seed(0)
    pieces = len(json.loads((path / "vocab.json").read_text()))
    config = getattr(transformers, f"{begin}Config")(**SIZES, vocab_size=pieces)
    getattr(transformers, f"{begin}LMHeadModel")(config).save_pretrained(path)
    return path


def write_rows(path: Path, *, pair: bool = False, count: int = 48) -> Path:
    rng = random.Random(0)
    rows = ["text,other,label" if pair else "text,label"]
    for _ in range(count):
        word = rng.choice([*KINDS])
        rows.append(",".join([f"a {word} film", *(["the fox"] if pair else []), KINDS[word]]))
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_folder_is_embedded_as_it_is(folder: Path) -> None:
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = osbert.load(folder)
    for text in ("the quick fox", "don't stop"):
        with torch.no_grad():
            hidden = theirs(input_ids=tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state[0]
        np.testing.assert_allclose(model.embed([text], pooling="tokens")[0], hidden.numpy(), rtol=0, atol=2e-5)
    assert np.isfinite(model.embed(["", "a"])).all()


def test_what_is_appended_changes_no_earlier_score(folder: Path) -> None:
    model = osbert.load(folder)
    short, long = model.embed(["the quick", "the quick brown fox don't stop"], pooling="tokens")
    # The same numbers in another batch: the sums of a matrix product may be taken in another order.
    np.testing.assert_allclose(long[: len(short) - 1], short[:-1], rtol=0, atol=1e-6)


def test_a_corpus_of_its_pieces_pretrains_it_further(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n\n".join(f"{text}. {text}!" for text in LEARNT * 20) + "\n")
    corpus = tmp_path / "corpus"
    assert run("corpus", "build", tmp_path / "texts.txt", "--tokenizer", folder, "--out", corpus, "--workers", "1") == 0
    quick = ("--steps", "2", "--batch", "4", "--data.length", "16", "--device", "cpu", "--log-every", "1")
    assert run("pretrain", *quick, "--corpus", corpus, "--from", folder, "--out", tmp_path / "run") == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model_type"] != "osbert"
    assert run("pretrain", "cpu", *quick, "--corpus", corpus, "--out", tmp_path / "masked") == 1


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_a_task_gets_three_pieces_and_the_auxiliary_loss(folder: Path, tuning: str, tmp_path: Path) -> None:
    rows, out = write_rows(tmp_path / "rows.csv"), tmp_path / "run"
    made = osbert.finetune("classify", model=folder, data=rows, out=out, auxiliary=0.5, tuning=tuning, **QUICK)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    for line in steps:
        total = line["classify.loss"] + 0.5 * line["left_to_right.loss"]
        assert line["loss"] == pytest.approx(total, rel=1e-6)
    assert steps[-1]["left_to_right.loss"] < steps[0]["left_to_right.loss"] or tuning == "lora"
    assert "left_to_right" in (out / "report.html").read_text()
    model = osbert.load(out)
    pieces = transformers.AutoTokenizer.from_pretrained(out)
    ids = pieces("a good film")["input_ids"]
    start, *_, last = pieces.convert_ids_to_tokens(ids)
    assert (start, last) == (MARKS[0], MARKS[2]) and len(pieces) == model.learner.backbone.architecture.vocabulary
    found = model.predict(["a good film", ""])
    assert len(found) == 2 and made.folder == out
    assert run("evaluate", out, "--data", rows) == 0


@pytest.mark.parametrize("shape", [{"piece_transform": True}, {"piece_transform": False, "tied": False}])
def test_the_auxiliary_loss_keeps_a_trained_head_although_pieces_are_added(shape: dict[str, bool], tmp_path) -> None:
    GPTS["gpt2"](tmp_path)
    pieces = len(json.loads((tmp_path / "vocab.json").read_text()))
    torch.manual_seed(0)
    sizes = Architecture(layers=1, heads=2, width=16, vocabulary=pieces, direction="left_to_right", **shape)
    backbone = sizes.build()
    head = LeftToRight().head(backbone)
    for weight in head.parameters():
        torch.nn.init.normal_(weight)
    write_model(Learner(backbone, {"left_to_right": head}), tmp_path)
    start = read_model(tmp_path, FinetuneSettings(auxiliary=0.5))
    kept = start.language.state_dict()
    assert kept.keys() == head.state_dict().keys() and not any(
        "is newly initialised" in remark for remark in start.remarks
    )
    for name, trained in head.state_dict().items():
        torch.testing.assert_close(kept[name][: len(trained)], trained)
        assert len(kept[name]) == (pieces + len(MARKS) if len(trained) == pieces else len(trained))
    assert start.language.tied[0] is start.backbone.embedding
    assert len(start.language.pieces) == len(start.tokenizer) == pieces + len(MARKS)
    write_model(Learner(backbone, {}), tmp_path)
    fresh = [
        remark
        for remark in read_model(tmp_path, FinetuneSettings(auxiliary=0.5)).remarks
        if "is newly initialised" in remark
    ]
    assert len(fresh) == len(head.state_dict()) and all("left_to_right" in remark for remark in fresh)


def test_without_weight_nothing_changes_and_a_model_that_looks_both_ways_is_refused(folder: Path, tmp_path) -> None:
    rows = write_rows(tmp_path / "rows.csv")
    for name, settings in (("plain", {}), ("none", {"auxiliary": 0.0})):
        osbert.finetune("classify", model=folder, data=rows, out=tmp_path / name, **settings, **QUICK)
    plain, none = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "none"))
    assert plain == none
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    both = tmp_path / "both"
    transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=400)).save_pretrained(both)
    for path in folder.glob("tokenizer*"):
        (both / path.name).write_bytes(path.read_bytes())
    with refusal("unsupported-model", "0.5", "both"):
        osbert.finetune("classify", model=both, data=rows, out=tmp_path / "no", auxiliary=0.5, **QUICK)
    with refusal("unsupported-model", "0.5", "recurrent = 1"):
        osbert.finetune("classify", model=folder, data=rows, out=tmp_path / "no", auxiliary=0.5, recurrent=1, **QUICK)


def test_the_auxiliary_loss_is_the_mean_over_sequences_of_their_next_pieces(folder: Path, tmp_path: Path) -> None:
    """Each the loss that transformers gives for the sequence by itself, special pieces included."""
    (tmp_path / "data").mkdir()
    texts = ["good", "a bad film", "a fine film and a poor fox don't stop", "good"]
    rows = "text,label\n" + "".join(f"{text},{number % 2}\n" for number, text in enumerate(texts))
    for split in ("train", "dev"):
        (tmp_path / "data" / f"{split}.csv").write_text(rows)
    quick: dict[str, Any] = {**QUICK, "epochs": 1, "dropout": 0.0, "learning_rate": 1e-12, "auxiliary": 0.5}
    osbert.finetune("classify", model=folder, data=tmp_path / "data", out=tmp_path / "run", **quick)
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")
    theirs = getattr(transformers, f"{CLASSES[folder.name]}LMHeadModel").from_pretrained(folder).eval()
    theirs.resize_token_embeddings(len(tokenizer))
    table = osbert.load(tmp_path / "run").learner.backbone.embedding.weight
    theirs.get_input_embeddings().weight.data = table.detach().clone()
    theirs.tie_weights()
    inputs = [tokenizer(text, return_tensors="pt")["input_ids"] for text in texts]
    with torch.no_grad():
        losses = [theirs(input_ids=ids, labels=ids).loss.item() for ids in inputs]
    assert line["left_to_right.loss"] == pytest.approx(np.mean(losses), abs=2e-5)


@pytest.mark.parametrize("kind", ["classify", "regress"])
def test_pairs_in_both_orders_have_one_answer(folder: Path, kind: str, tmp_path: Path) -> None:
    """The similarity form: the two states are added before the layer, so that the order of the texts says nothing."""
    rows, out = write_rows(tmp_path / "rows.csv", pair=True), tmp_path / "run"
    if kind == "regress":
        rows.write_text(rows.read_text().replace(",pos", ",1.5").replace(",neg", ",0.5"))
    named = {"text": "text", "pair": "other", "label": "label", "both_orders": True, "auxiliary": 0.5}
    osbert.finetune(kind, model=folder, data=rows, out=out, **named, **QUICK)
    model = osbert.load(out)
    one, other = model.predict([("a good film", "the fox"), ("the fox", "a good film")])
    scores = [[found.value] if kind == "regress" else [*found.probabilities.values()] for found in (one, other)]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-5)
    head, task = model.learner.heads[kind], model.task
    first, second = task.encode(task.record_of(("a good film", "the fox")), model.packer)
    with torch.no_grad():
        states = model.learner.states(collate([first, replace(second, record=1)]))
        added = head.linear(states.pooled.sum(dim=0))
    if kind == "regress":
        assert one.value == pytest.approx(task.center + task.scale * added.item(), abs=1e-5)
    else:
        expected = (added / (task.temperature or 1)).softmax(dim=0).numpy()
        np.testing.assert_allclose(scores[0], expected, rtol=0, atol=1e-5)
    if (kind, folder.name) == ("classify", "gpt2"):
        assert run("export", out, "--to", "onnx", "--out", tmp_path / "onnx") == 0
        exported = osbert.load(tmp_path / "onnx").predict([("a good film", "the fox")])[0]
        assert exported.lines() == one.lines()
    assert json.loads((out / "config.json").read_text())["model_type"] == "osbert"
    worker, now = Worker(Orders(runs=[ModelFolder("run", out)], device="cpu")), time.monotonic()
    request = {"texts": [["a good film", "the fox"]]}
    assert not worker.take_in([Dispatch(1, "predict", request, now, now + 60)])
    assert worker.work().answers[0].status == 200


def test_one_text_has_no_other_order(folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.csv")
    with refusal("wrong-number-of-texts", "both-orders"):
        osbert.finetune("classify", model=folder, data=rows, out=tmp_path / "run", both_orders=True, **QUICK)
    with refusal("invalid-setting", "both_orders", "window"):
        osbert.finetune("classify", model=folder, data=rows, out=tmp_path / "run", both_orders=True, long="window")
