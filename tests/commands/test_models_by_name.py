"""Verbs take a model by its name: from a hub on localhost, its progress on standard error, its commit in run.json."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import corpora
import terminal
from hub_server import Hub, commit_of, contents, hub_on_localhost
from osbert.console.model_downloads import resolve_model
from osbert.interop.hub import default_out, display_name
from osbert.interop.tokenizers import read_tokenizer
from tiny_runs import TASKS, write_run

NAME = "someone/tiny"
ROWS = "text,label\n" + "".join(f"a {word} film,{label}\n" for word, label in [("good", "pos"), ("bad", "neg")] * 12)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_on_localhost(tmp_path, monkeypatch) as running:
        running.repositories[NAME] = contents(write_run(tmp_path / "made", None))
        running.repositories["someone/run"] = contents(write_run(tmp_path / "run", TASKS["classifier"]))
        yield running


def test_vectors_by_a_name_are_those_of_the_folder(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("texts.txt").write_text("a good film\nthe bad actor plays\n")
    assert terminal.run("embed", NAME, "texts.txt", "--out", "one.npy") == 0
    output = capsys.readouterr()
    assert "model.safetensors" in output.err
    assert "safetensors" not in output.out
    assert terminal.run("embed", str(tmp_path / "made"), "texts.txt", "--out", "two.npy") == 0
    assert "model.safetensors" not in capsys.readouterr().err
    assert (np.load("one.npy") == np.load("two.npy")).all()


def test_a_run_on_a_hub_predicts_and_is_scored(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.csv").write_text(ROWS)
    assert terminal.run("predict", "someone/run", "a good film") == 0
    assert terminal.run("evaluate", f"someone/run@{commit_of('someone/run')}", "--data", "rows.csv") == 0
    assert "accuracy" in capsys.readouterr().out


def test_a_fine_tuned_run_keeps_name_and_commit(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.csv").write_text(ROWS)
    words = ["finetune", "classify", "--model", NAME, "--data", "rows.csv", "--out", "out", "--epochs", "1"]
    assert terminal.run(*words) == 0
    assert json.loads(Path("out/run.json").read_text())["hub"] == {"name": NAME, "commit": commit_of(NAME)}
    hub.status = 500  # a finished run is finished, with a hub or without
    assert terminal.run(*words) == 0
    assert "The copy in the cache is used" in capsys.readouterr().err


def test_pretraining_goes_on_from_a_name_and_keeps_it(hub: Hub, tmp_path: Path) -> None:
    corpus = corpora.build_corpus(tmp_path / "text", corpora.invented(), read_tokenizer(tmp_path / "made"))
    words = ["pretrain", "--from", NAME, "--corpus", str(corpus), "--out", "more", "--steps", "2"]
    assert terminal.run(*words, "--batch", "4", "--data.length", "16") == 0
    assert json.loads(Path("more/run.json").read_text())["hub"] == {"name": NAME, "commit": commit_of(NAME)}


@pytest.mark.lab
def test_a_table_is_reproduced_with_a_model_by_its_name(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from osbert_lab.papers.children import ChildCommands

    monkeypatch.setattr(ChildCommands, "work", lambda self, trial: terminal.run(*trial.settings))
    Path("glue/CoLA").mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        rows = "".join(f"x\t{number % 2}\t\ta {('bad', 'good')[number % 2]} film\n" for number in range(12))
        Path("glue/CoLA", name).write_text(rows)
    words = ["reproduce", "table1", "--model", NAME, "--data", "glue", "--out", "out", "--seeds", "1"]
    assert terminal.run(*words, "--finetuning.epochs", "1", "--finetuning.length", "16") == 0
    facts = json.loads(Path("out/runs/ours/seed-0/CoLA/run.json").read_text())
    assert facts["hub"] == {"name": NAME, "commit": commit_of(NAME)}


def test_an_export_of_a_name_lies_in_the_current_folder(hub: Hub, tmp_path: Path) -> None:
    assert terminal.run("convert", NAME, "converted", "--to", "huggingface") == 0
    shutil.rmtree("converted")
    assert terminal.run("export", NAME, "--to", "onnx") == 0
    assert Path("tiny-onnx/model.onnx").is_file()
    assert default_out(tmp_path / "run", "-int8") == tmp_path / "run-int8"
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    assert default_out(package / "model", "-onnx") == Path("package-onnx")


@pytest.mark.lab
def test_a_report_calls_a_model_by_its_name(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("texts.txt").write_text("a good film\n\n" * 12)
    words = ("analyse", NAME, "--data", "texts.txt", "--out", "out", "--shortest", "3", "--only", "heads")
    assert terminal.run(*words) == 0
    assert json.loads(Path("out/analysis.json").read_text())["model"] == NAME
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr("osbert.interop.hub.list_packaged_models", lambda: ["small"])
    monkeypatch.setattr("osbert.interop.hub.find_packaged_folder", lambda name: package / "model")
    assert display_name(package / "model") == "small" and display_name(tmp_path / "model") == "model"


def test_a_server_names_a_model_as_the_hub_does(hub: Hub, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    assert resolve_model(run) == run
    assert resolve_model(f"mine={run}") == f"mine={run}"
    (tmp_path / "here" / "a=b").mkdir()
    assert (resolve_model("a=b"), resolve_model("mine=a=b")) == ("a=b", "mine=a=b")
    name, _, path = resolve_model(NAME).partition("=")
    assert (name, Path(path).name) == ("tiny", commit_of(NAME))
    assert resolve_model(f"{NAME}@main") == f"{name}={path}"
    assert resolve_model(f"mine={NAME}@{commit_of(NAME)}") == f"mine={path}"


def test_a_name_that_is_not_there_is_an_error(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert terminal.run("predict", "someone/tinny", "a text") == 1
    assert "error: There is no folder someone/tinny here" in capsys.readouterr().err
    assert terminal.run("predict", "./someone/tiny", "a text") == 1
    assert "error: ./someone/tiny " in capsys.readouterr().err
