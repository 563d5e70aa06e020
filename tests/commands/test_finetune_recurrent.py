"""Recurrent layers added in fine-tuning: fresh, from the seed, kept in the run folder, and used in prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from osbert.commands.finetune import finetune
from osbert.inference.engine import load
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.fast.dropout import Dropout
from osbert.runs.finetune.model import read_model
from osbert.runs.finetune.settings import FinetuneSettings
from refusals import refusal


def read(folder: Path, *, seed: int = 0, recurrent: int = 1, from_scratch: bool = False) -> torch.nn.Module:
    return read_model(
        folder, FinetuneSettings(seed=seed, dropout=0.3, recurrent=recurrent), from_scratch=from_scratch
    ).backbone


def test_they_start_afresh_from_the_seed_and_the_rest_is_the_encoders(encoder: Path) -> None:
    plain = read(encoder, recurrent=0)
    one, again, other, two = read(encoder), read(encoder), read(encoder, seed=1), read(encoder, recurrent=2)
    weights = [
        torch.cat([weight.flatten() for weight in model.recurrent.parameters()]) for model in (one, again, other)
    ]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    for name, weight in plain.state_dict().items():
        assert torch.equal(weight, one.state_dict()[name]), name
    assert plain.recurrent is None and two.architecture.recurrent == two.recurrent.lstm.num_layers == 2
    assert {part.probability for part in one.modules() if isinstance(part, Dropout)} == {0.3}
    scratch = read(encoder, from_scratch=True)
    assert scratch.architecture == one.architecture
    said = read_model(encoder, FinetuneSettings(recurrent=2)).remarks
    assert "the bidirectional LSTM on top is newly initialised (recurrent = 2)" in said


def test_a_run_with_them_stands_alone_and_goes_on_with_them(
    encoder: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    quick = ("--epochs", "4", "--learning-rate", "1e-2", "--precision", "fp32", "--device", "cpu")
    finetune("classify", *quick, "--recurrent", "1", model=encoder, data=table, out=first)
    said = capsys.readouterr().out
    assert "1 layers and 1 recurrent of 16" in said and "LSTM on top is newly initialised" in said
    assert "opens in osbert, not in transformers" in said
    engine = load(first)
    assert engine.learner.backbone.architecture.recurrent == 1 and not engine.remarks
    found = [one.value for one in engine.predict(["the good film", "a bad film plays", "fine .", "poor play"])]
    assert found == ["pos", "neg", "pos", "neg"]
    best = json.loads((first / "run.json").read_text())["finished"]["best"]
    assert best["metrics"]["accuracy"] == 1

    finetune("classify", *quick, "--epochs", "1", model=first, data=table, out=second)
    assert "newly initialised" not in capsys.readouterr().out
    kept = read(first, recurrent=0)
    assert torch.equal(kept.recurrent.lstm.weight_hh_l0, engine.learner.backbone.recurrent.lstm.weight_hh_l0)
    assert load(second).learner.backbone.architecture.recurrent == 1


def test_what_cannot_be_is_told(encoder: Path, table: Path, tmp_path: Path) -> None:
    with refusal("invalid-setting", "0", "1"):
        finetune("classify", "--recurrent", "-1", model=encoder, data=table, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    backbone = Architecture(layers=1, heads=3, width=9, vocabulary=16, length=8).build()
    write_model(Learner(backbone, {}), tmp_path / "odd")
    write_tokenizer(read_tokenizer(encoder), tmp_path / "odd", length=8)
    with refusal("unsupported-model", "9"):
        read(tmp_path / "odd")
