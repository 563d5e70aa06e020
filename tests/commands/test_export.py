"""osbert export: every kind of task predicts the same from the exported folder; what fails is not written."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from osbert import cli, components, recipe
from osbert.commands.evaluate import evaluate
from osbert.commands.export import export
from osbert.inference.engine import load
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.models.contract import Head, Learner
from osbert.runs.export import ExportComparison, Side, development, refuse, write
from osbert.runs.file_options import LabelledOptions
from osbert.server.calls.models import ModelFolder
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker
from osbert.tasks import Task
from osbert.text.tokenizer import Tokenizer
from refusals import refusal
from tiny_runs import write_exported

SETTINGS: dict[str, dict[str, Any]] = {
    "classify": {"labels": ("neg", "pos", "so so"), "temperature": 1.7},
    "regress": {"center": 3.0, "scale": 2.0},
    "tag": {"types": ("X",), "decoder": "crf", "legal": True},
    "span": {"length": 20, "stride": 4},
}
ASKED = {
    "span": [("the actor", "a good film . the actor plays a poor play " * 2), ("film", "bad")],
    "choose": [("the film", "good", "bad actor plays"), ("a", "film", "play", "the actor .")],
}


def made(kind: str, encoder: Path, folder: Path) -> Path:
    """Return a run folder of a task with random weights."""
    task: Task = components.find("tasks", kind, base=Task)(**SETTINGS.get(kind, {}))
    read = open_folder(encoder)
    torch.manual_seed(3)
    head = task.head(read.backbone)
    for weight in head.parameters():
        torch.nn.init.normal_(weight)
    write_model(Learner(read.backbone, {kind: head}), folder, **task.export_metadata())
    write_tokenizer(read.tokenizer, folder)
    (folder / "recipe.toml").write_text(recipe.dump({"task": kind, kind: recipe.as_table(task)}))
    return folder


@pytest.mark.parametrize("kind", [*SETTINGS, pytest.param("choose", marks=pytest.mark.lab)])
def test_every_kind_of_task_says_the_same(kind: str, encoder: Path, tmp_path: Path) -> None:
    run = load(made(kind, encoder, tmp_path / "run"))
    other = load(write_exported(tmp_path / "out", run.folder))
    texts = ASKED.get(kind, ["good film", "the actor plays . a bad bad film", "", "play " * 40])
    for one, same in zip(run.predict(texts), other.predict(texts), strict=True):
        assert str(one.value)[:6] == str(same.value)[:6] and one.truncated == same.truncated
        for field in dataclasses.fields(one):
            close(getattr(one, field.name), getattr(same, field.name))
    with refusal("unsupported-model"):
        _ = other.learner


def close(one: Any, other: Any) -> None:
    """Compare two predictions' parts, numbers to 2e-5."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            close(one[name], other[name])
    elif isinstance(one, tuple | list):
        for a, b in zip(one, other, strict=True):
            close(a, b)
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=2e-5)
    elif dataclasses.is_dataclass(one):
        close(vars(one), vars(other))
    else:
        assert one == other


def is_served(folder: Path) -> None:
    """Have a worker of a server predict with an exported classifier."""
    worker = Worker(Orders(runs=[ModelFolder("small", folder)]))
    asked = {"texts": ["the actor plays . a bad bad film"]}
    assert worker.take_in([Dispatch(1, "predict", asked, 0.0, math.inf)]) == []
    (answer,) = worker.work().answers
    (said,) = load(folder).predict(asked["texts"])
    told = {"label": said.value, "probabilities": dict(said.probabilities)}
    assert answer.status == 200 and json.loads(answer.body) == {"model": "small", "predictions": [told]}


def test_an_encoder_embeds_the_same(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(encoder, to="onnx", out=tmp_path / "out")
    said = capsys.readouterr().out
    assert "an encoder, on 64 sequences of random pieces" in said
    assert float(said.partition("largest difference of states: ")[2].split()[0]) < 2e-5
    one, other = load(encoder), load(tmp_path / "out")
    texts = ["good film", ("the play", "a bad actor plays ."), "", "film " * 40]
    for pooling in ("cls", "mean", "max", "pooler"):
        np.testing.assert_allclose(one.embed(texts, pooling=pooling), other.embed(texts, pooling=pooling), atol=2e-5)
    for a, b in zip(one.embed(texts, pooling="tokens", layers=[-1]), other.embed(texts, pooling="tokens", layers=[1])):
        np.testing.assert_allclose(a, b, atol=2e-5)
    with refusal("unsupported-model", "--layers", "1"):
        other.embed(texts, layers=0)
    with refusal("unavailable-device", "cuda"):
        load(tmp_path / "out", device="cuda")
    with refusal("not-a-model"):
        other.predict(texts)
    refuses_what_is_not_its_own(tmp_path / "out")
    shutil.copy(load_recipe(tmp_path / "run", encoder), tmp_path / "out")
    with refusal("damaged-file"):
        load(tmp_path / "out")


def refuses_what_is_not_its_own(folder: Path) -> None:
    """Look at an exported folder with other files than those it was written with."""
    config, pieces = folder / "config.json", read_tokenizer(folder).vocabulary
    before = config.read_text()
    write_tokenizer(Tokenizer([*pieces[:-2], pieces[-1], pieces[-2]]), folder)
    with refusal("mismatched-tokenizer"):
        load(folder)
    config.write_text(json.dumps({**json.loads(before), "vocab_size": 46, "max_position_embeddings": 512}))
    write_tokenizer(Tokenizer([*pieces, *map(chr, range(0x4E00, 0x4E1E))]), folder)
    with refusal("damaged-file", "46", "16", "512", "24"):
        load(folder)
    config.write_text(before)
    with refusal("mismatched-tokenizer", "46", "16"):
        load(folder)
    write_tokenizer(Tokenizer(pieces), folder)
    model = onnx.load(folder / "model.onnx")
    kept = [one for one in model.metadata_props if one.key not in ("osbert.sizes", "osbert.tokenizer")]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, folder / "model.onnx")
    write_tokenizer(Tokenizer(pieces[:12]), folder)  # a file of before does not tell: then what can be seen is told
    (remark,) = load(folder).remarks
    assert "the last 4 rows belong to no piece: the vocabulary has 12" in remark
    write_tokenizer(Tokenizer([*pieces, "more"]), folder)
    config.write_text(json.dumps({**json.loads(before), "vocab_size": 17}))
    with refusal("damaged-file", "16", "config.json"):
        load(folder).embed(["more"])
    config.write_text(before)
    write_tokenizer(Tokenizer(pieces), folder)


def load_recipe(folder: Path, encoder: Path) -> Path:
    return made("regress", encoder, folder) / "recipe.toml"


def test_the_command_compares_on_the_development_rows_and_its_export_in_bytes_is_served(
    run: Path, table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    command = ["export", str(tmp_path / "run"), "--to", "onnx", "--int8"]
    status, (said, error) = cli.main([*command, "--tolerance", "0.5"]), capfd.readouterr()
    assert not status and not error, error
    out = tmp_path / "run-int8"
    lines = said.splitlines()
    assert lines[0] == "20 rows" and "torch fp32" in lines[1] and "onnxruntime int8" in lines[1]
    assert lines[2].startswith("accuracy") and lines[-1] == f"-> {out}"
    assert {path.name for path in out.iterdir()} >= {"model.onnx", "vocab.txt", "recipe.toml", "run.json"}
    assert not (out / "model.safetensors").exists()
    is_served(out)
    evaluate(out, data=table)
    capfd.readouterr()
    assert cli.main(command) == 1 and str(out) in capfd.readouterr().err
    assert cli.main(["export", str(out), "--to", "onnx"]) == 1


def test_the_export_of_a_folder_without_recipe_says_that_its_classifier_is_left_out(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs"
    assert not cli.main(["convert", str(run), str(theirs), "--to", "huggingface"])
    capsys.readouterr()
    assert not cli.main(["export", str(theirs), "--to", "onnx"])
    assert "classifier.weight" in "".join(capsys.readouterr())


def test_a_metric_that_drops_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ExportComparison, "drop", 0.02)
    assert cli.main(["export", str(run), "--to", "onnx", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert all(value in error for value in ("accuracy", "0.0200", "--tolerance 0.01"))
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    nothing = Side(outputs=[], seconds=1.0, size=1, score=float("nan"))
    with refusal("check-failed"):
        refuse(ExportComparison(run=nothing, exported=nothing, what="", criterion="f1"), 0.01)
    one = Side(outputs=[np.ones(2, np.float32)] * 2, seconds=1.0, size=1)
    other = dataclasses.replace(one, outputs=[*one.outputs[:1], np.array([1, np.nan], np.float32)])
    with refusal("not-finite"):
        refuse(ExportComparison(run=one, exported=other, what=""), 0.01)


def test_rows_to_compare_on(run: Path, encoder: Path, table: Path, tmp_path: Path) -> None:
    engine = load(run)
    task, records = development(engine, run, None, LabelledOptions()) or (None, ())
    assert task is not None and len(records) == 20
    _, records = development(engine, run, table, LabelledOptions()) or (None, ())
    assert len(records) == 200
    engine.task = dataclasses.replace(engine.fine_tuned, data=str(tmp_path / "gone.csv"))
    with refusal("missing-option", "gone.csv", "--data"):
        development(engine, run, None, LabelledOptions())
    with refusal("options-exclude-each-other", "--data"):
        development(engine, run, None, LabelledOptions(text="a"))
    with refusal("options-exclude-each-other", "--data"):
        development(load(encoder), encoder, table, LabelledOptions())


def test_what_has_no_form_in_onnx_is_refused(encoder: Path, tmp_path: Path) -> None:
    engine = load(made("tag", encoder, tmp_path / "run"))
    head = engine.learner.heads["tag"]
    assert isinstance(head, Head)
    engine.learner.backbone.recurrent = torch.nn.Identity()  # type: ignore[assignment]
    with refusal("not-exportable"):
        write(engine, tmp_path / "run", tmp_path, int8=False)
