"""Several tasks with one encoder: each with scores and a run folder of its own; stopped and gone on with like any."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from osbert import recipe
from osbert.commands.finetune import finetune
from osbert.inference.engine import load
from osbert.options import parse_settings
from osbert.runs.events import TrainingStart
from osbert.runs.finetune.finetune import finetune as finetune_tasks
from osbert.runs.finetune.plan import schema
from osbert.runs.finetune.records import data_of, own_settings
from osbert.training.progress import Progress
from osbert.training.tracking import read_lines
from refusals import refusal

QUICK = ("--epochs", "5", "--batch", "8", "--learning-rate", "1e-2", "--precision", "fp32", "--device", "cpu")
FILES = {"classify": "reviews.csv", "regress": "scores.csv"}


def together(*settings: str, model: Path, data: Path, out: Path, files: Mapping[str, str] = FILES) -> None:
    """Fine-tune on the files of a folder, each by the task of its name."""
    first, *others = files
    own = [word for task, name in files.items() for word in (f"--{task}.data", str(data / name))]
    finetune(first, *others, *settings, *own, model=model, data=data, out=out)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Path:
    """Return a folder with two tables: labels of 200 texts, and numbers of 80."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "reviews.csv").write_text(table.read_text())
    words = {"good": 30, "fine": 20, "poor": 10, "bad": 0}
    rows = [f"the {word} film,{value}" for word, value in words.items()] * 20
    (folder / "scores.csv").write_text("text,score\n" + "\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, encoder: Path, data: Path) -> Path:
    out = tmp_path_factory.mktemp("together") / "run"
    together(*QUICK, model=encoder, data=data, out=out)
    return out


def test_each_task_has_a_run_with_the_same_encoder(run: Path) -> None:
    best = json.loads((run / "run.json").read_text())["finished"]["best"]["metrics"]
    assert best["mean"] == pytest.approx((best["classify.accuracy"] + best["regress.r2"]) / 2)
    engines = {name: load(run / name) for name in ("classify", "regress")}
    first, second = (engine.learner.backbone.state_dict() for engine in engines.values())
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert [one.value for one in engines["classify"].predict(["the good film", "a bad film plays"])] == ["pos", "neg"]
    good, bad = engines["regress"].predict(["the good film", "the bad film"])
    assert good.value > bad.value + 10
    for name, score in (("classify", "accuracy"), ("regress", "pearson")):
        own = json.loads((run / name / "run.json").read_text())["finished"]["best"]["metrics"]
        assert own[score] == best[f"{name}.{score}"] and "mean" not in own
        assert recipe.read(run / name / "recipe.toml")["task"] == name


def test_the_folder_of_all_tasks_names_those_with_a_model(run: Path) -> None:
    with refusal("not-a-model", run / "classify", run / "regress"):
        load(run)


def test_the_scores_of_each_epoch_are_kept(run: Path) -> None:
    epochs = [line for line in read_lines(run / "metrics.jsonl") if "epoch" in line]
    assert len(epochs) == 5
    assert {"dev.mean", "dev.classify.accuracy", "dev.regress.spearman", "train.loss"} <= set(epochs[0])
    page = (run / "report.html").read_text()
    assert "classify.accuracy" in page and "regress.pearson" in page and "Fine-tuning: classify, regress" in page
    losses = [line for line in read_lines(run / "metrics.jsonl") if "loss" in line]
    assert {name for line in losses for name in line if name.endswith(".loss")} >= {"classify.loss", "regress.loss"}


class Killed(Exception):
    """Stands for a kill: nothing is written after it."""


def test_a_stopped_run_ends_in_the_same_weights(run: Path, encoder: Path, data: Path, tmp_path: Path) -> None:
    files = {f"{task}.data": str(data / name) for task, name in FILES.items()}
    settings = parse_settings([*QUICK, "--checkpoint-every", "7"], schema("classify"), schema("regress")) | files
    begins: list[int] = []

    def watch(event: object) -> None:
        if isinstance(event, TrainingStart):
            begins.append(event.done)
        if isinstance(event, Progress) and event.step == 40 and len(begins) == 1:
            raise Killed

    for end in (pytest.raises(Killed), contextlib.nullcontext()):
        with end:
            finetune_tasks([*FILES], model=encoder, data=data, out=tmp_path / "run", watch=watch, **settings)
    assert begins == [0, 35]
    for name in ("classify", "regress"):
        path = f"{name}/model.safetensors"
        assert (tmp_path / "run" / path).read_bytes() == (run / path).read_bytes()


def test_a_run_that_was_begun_by_a_version_before_goes_on(
    run: Path, encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its recipe has the same keys: `tasks`, and a table for each."""
    table = json.loads((run / "run.json").read_text())["settings"]
    assert table["tasks"] == ["classify", "regress"] and "task" not in table
    assert {"classify", "regress", "training", "optimizer", "model", "from_scratch"} == {*table} - {"tasks"}
    together(*QUICK, model=encoder, data=data, out=run)
    assert capsys.readouterr().out.count("best: epoch") == 3


def test_at_the_end_each_task_is_told_as_one_by_itself(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *rows = (data / "reviews.csv").read_text().splitlines()
    (tmp_path / "more.csv").write_text("\n".join([header, *rows * 3]) + "\n")  # 60 rows for development
    monkeypatch.setattr(
        "osbert.runs.finetune.rows.constant_answer", lambda task, *_: "3.0" if task.name == "regress" else ""
    )
    header, *rows = (data / "scores.csv").read_text().splitlines()
    (tmp_path / "scores.csv").write_text("\n".join([header, *rows * 2]) + "\n")  # 16: too few cannot show a collapse
    files = FILES | {"classify": str(tmp_path / "more.csv"), "regress": str(tmp_path / "scores.csv")}
    together(*QUICK, "--epochs", "1", model=encoder, data=data, out=tmp_path / "run", files=files)
    told = capsys.readouterr().out
    first, second = told[told.index("best: ") :].split("\nregress:")
    assert "collapsed" not in first and "F1 of each class: neg " in first and "temperature" in first
    assert "it predicts 3.0 for every development row" in second and "temperature" not in second
    assert first.count("osbert predict") == second.count("osbert predict") == 1


def test_adapters_can_be_shared_and_what_was_found_in_the_data_is_told(
    encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = (*QUICK, "--epochs", "1", "--tuning", "adapters")
    together(*few, model=encoder, data=data, out=tmp_path / "run")
    for name in ("classify", "regress"):
        assert (tmp_path / "run" / name / "tuned.safetensors").is_file()
        load(tmp_path / "run" / name).predict(["good"])
    said = " ".join(capsys.readouterr().out.split())
    assert "regress: no file for development: 10% of the training rows" in said and "label from 'score'" in said


@pytest.mark.parametrize(
    ("files", "settings", "refused"),
    [
        ({"classify": "reviews.csv", "regres": "scores.csv"}, (), ("unknown-component", "'regres'", "'regress'")),
        ({**FILES, "regress": "reviews.csv"}, (), ("unusable-row", "regress: ")),
        pytest.param(FILES, ("--seeds", "3"), ("options-exclude-each-other", "--seeds"), marks=pytest.mark.lab),
        (FILES, ("--batch", "256", "--epochs", "1"), ("too-little-data", "2 steps", "classify")),
        ({**FILES, "regress": "absent.csv"}, (), ("missing-file", "absent.csv")),
    ],
)
def test_what_cannot_be_is_told_before_training(
    encoder: Path,
    data: Path,
    tmp_path: Path,
    files: Mapping[str, str],
    settings: Sequence[str],
    refused: tuple[str, ...],
) -> None:
    with refusal(*refused):
        together(*settings, model=encoder, data=data, out=tmp_path / "run", files=files)
    assert not (tmp_path / "run").exists()


def test_a_task_is_named_once(encoder: Path, data: Path, tmp_path: Path) -> None:
    with refusal("duplicate-name"):
        finetune("classify", "classify", model=encoder, data=data, out=tmp_path / "run")


def test_the_spelling_before_is_answered_with_that_of_today(encoder: Path, data: Path, tmp_path: Path) -> None:
    with refusal("replaced-option", "--data", "--mrpc.data"):
        finetune("multi", "--tasks", "rte=RTE,mrpc=MRPC", model=encoder, data=data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tasks_own_settings_are_its_own() -> None:
    words = {"epochs": "2", "rte.length": "64", "mrpc.length": "32", "merge": "true", "my.own.task": "x"}
    assert {*own_settings(words, "rte", ["rte", "mrpc"])} == {*words} - {"mrpc.length"}
    assert {*own_settings(words, "mrpc", ["rte", "mrpc"])} == {*words} - {"rte.length"}


def test_the_data_of_a_task_are_found_by_its_name(tmp_path: Path) -> None:
    for name in ("SST-2", "rte"):
        (tmp_path / name).mkdir()
    for name in ("classify.csv.gz", "rte.csv"):
        (tmp_path / name).touch()
    found = data_of(["sst2", "classify", "rte", "mine.regress"], tmp_path)
    assert {name: path.name for name, path in found.items()} == {
        "sst2": "SST-2",
        "classify": "classify.csv.gz",
        "rte": "rte",
        "mine.regress": "regress",
    }
    with refusal("invalid-value", "rte"):
        data_of(["sst2", "rte"], {"sst2": tmp_path})
