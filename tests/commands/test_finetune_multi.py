"""Several tasks with one encoder: each with scores and a run folder of its own; stopped and gone on with like any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from osbert import recipe
from osbert.commands.finetune import finetune
from osbert.errors import UserError
from osbert.inference.engine import load
from osbert.runs.finetune.multi import own_settings, read_tasks
from osbert.training.tracking import ProgressLine, read_lines

QUICK = ("--epochs", "5", "--batch", "8", "--learning-rate", "1e-2", "--precision", "fp32", "--device", "cpu")
TASKS = ("--tasks", "classify=reviews.csv,regress=scores.csv")


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
def together(tmp_path_factory: pytest.TempPathFactory, encoder: Path, data: Path) -> Path:
    out = tmp_path_factory.mktemp("together") / "run"
    finetune("multi", *QUICK, *TASKS, model=encoder, data=data, out=out)
    return out


def test_each_task_has_a_run_with_the_same_encoder(together: Path) -> None:
    best = json.loads((together / "run.json").read_text())["finished"]["best"]["metrics"]
    assert best["mean"] == pytest.approx((best["classify.accuracy"] + best["regress.r2"]) / 2)
    engines = {name: load(together / name) for name in ("classify", "regress")}
    first, second = (engine.learner.backbone.state_dict() for engine in engines.values())
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert [one.value for one in engines["classify"].predict(["the good film", "a bad film plays"])] == ["pos", "neg"]
    good, bad = engines["regress"].predict(["the good film", "the bad film"])
    assert good.value > bad.value + 10
    for name, score in (("classify", "accuracy"), ("regress", "pearson")):
        own = json.loads((together / name / "run.json").read_text())["finished"]["best"]["metrics"]
        assert own[score] == best[f"{name}.{score}"] and "mean" not in own
        assert recipe.read(together / name / "recipe.toml")["task"] == name


def test_the_folder_of_all_tasks_names_those_with_a_model(together: Path) -> None:
    with pytest.raises(UserError, match=r"a run of several tasks.*: .*run/classify, .*run/regress\.$"):
        load(together)


def test_the_scores_of_each_epoch_are_kept(together: Path) -> None:
    epochs = [line for line in read_lines(together / "metrics.jsonl") if "epoch" in line]
    assert len(epochs) == 5
    assert {"dev.mean", "dev.classify.accuracy", "dev.regress.spearman", "train.loss"} <= set(epochs[0])
    page = (together / "report.html").read_text()
    assert "classify.accuracy" in page and "regress.pearson" in page and "Fine-tuning: multi" in page
    losses = [line for line in read_lines(together / "metrics.jsonl") if "loss" in line]
    assert {name for line in losses for name in line if name.endswith(".loss")} >= {"classify.loss", "regress.loss"}


class Killed(Exception):
    """Stands for a kill: nothing is written after it."""


def test_a_stopped_run_ends_in_the_same_weights(together: Path, encoder: Path, data: Path, tmp_path: Path) -> None:
    often = (*QUICK, *TASKS, "--checkpoint-every", "7")

    def stop(self: ProgressLine, progress: object, line: object) -> None:
        if progress.step == 40:  # type: ignore[attr-defined]
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressLine, "step", stop)
        with pytest.raises(Killed):
            finetune("multi", *often, model=encoder, data=data, out=tmp_path / "run")
    finetune("multi", *often, model=encoder, data=data, out=tmp_path / "run")
    for name in ("classify", "regress"):
        path = f"{name}/model.safetensors"
        assert (tmp_path / "run" / path).read_bytes() == (together / path).read_bytes()


def test_at_the_end_each_task_is_told_as_one_by_itself(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *rows = (data / "reviews.csv").read_text().splitlines()
    (tmp_path / "more.csv").write_text("\n".join([header, *rows * 3]) + "\n")  # 60 rows for development
    monkeypatch.setattr("osbert.runs.finetune.rows.collapsed", lambda task, *_: "3.0" if task.name == "regress" else "")
    tasks = ("--tasks", f"classify={tmp_path / 'more.csv'},regress=scores.csv")
    finetune("multi", *QUICK, "--epochs", "1", *tasks, model=encoder, data=data, out=tmp_path / "run")
    told = capsys.readouterr().out
    first, second = told[told.index("best: ") :].split("\nregress:")
    assert "collapsed" not in first and "F1 of each class: neg " in first and "temperature" in first
    assert "it has collapsed: every development row is 3.0" in second and "temperature" not in second
    assert first.count("osbert predict") == second.count("osbert predict") == 1


def test_adapters_can_be_shared_and_what_was_found_in_the_data_is_told(
    encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = (*QUICK, *TASKS, "--epochs", "1", "--tuning", "adapters")
    finetune("multi", *few, model=encoder, data=data, out=tmp_path / "run")
    for name in ("classify", "regress"):
        assert (tmp_path / "run" / name / "tuned.safetensors").is_file()
        load(tmp_path / "run" / name).predict(["good"])
    said = " ".join(capsys.readouterr().out.split())
    assert "regress: no file for development: 10% of the training rows" in said and "label from 'score'" in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((), "multi needs --tasks"),
        (("--tasks", "classify=reviews.csv"), "names 1 task; two or more"),
        (("--tasks", "classify=reviews.csv,classify=scores.csv"), "names classify more than once"),
        (("--tasks", "classify=reviews.csv,regres=scores.csv"), "regres: There is no 'regres'.*Did you mean 'regress'"),
        (("--tasks", "classify=reviews.csv,regress=reviews.csv"), r"regress: (.|\n)*the label '\w+' is not a number"),
        ((*TASKS, "--seeds", "3"), "several runs .* are of one task"),
        (
            (*TASKS, "--batch", "256", "--epochs", "1"),
            "None of the 2 steps is drawn for classify, which would not be learnt.",
        ),
        (("--tasks=classify=reviews.csv,regress=absent.csv",), r"absent\.csv: no such file or folder"),
    ],
)
def test_what_cannot_be_is_told_before_training(
    encoder: Path, data: Path, tmp_path: Path, settings: Sequence[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        finetune("multi", *settings, model=encoder, data=data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tasks_own_settings_are_its_own() -> None:
    words = ["--epochs", "2", "--rte.length", "64", "--mrpc.length=32", "--merge", "--my.own.task", "x"]
    assert own_settings(words, "rte", ["rte", "mrpc"]) == [*words[:4], *words[5:]]
    assert own_settings(words, "mrpc", ["rte", "mrpc"]) == [*words[:2], *words[4:]]


def test_a_folder_is_found_by_the_tasks_name(tmp_path: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    tasks, others = read_tasks(("--epochs", "1", "--tasks", "sst2,classify=a.csv"), tmp_path)
    assert tasks == {"sst2": tmp_path / "SST-2", "classify": tmp_path / "a.csv"} and others == ["--epochs", "1"]
