"""Calls of the public functions: what they take in place of a path, and what they say about anything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import osbert
from osbert.console.output import Output
from osbert.errors import UserError
from osbert.interop.hub import DownloadProgress
from osbert.runs.contract import WorkProgress
from osbert.runs.events import RunEnd, TrainingStart
from osbert.runs.finetune.finetune import FinetuneRun
from osbert.runs.similarity.retrieval import RetrievalProgress
from osbert_lab.analysis.opened_model import AnalysisProgress

ROWS = [("a good film", "pos"), ("the bad play", "neg")] * 20
SMALL: dict[str, Any] = {"epochs": 1, "batch": 8, "few_shot": "none"}


@pytest.fixture(scope="module")
def trained(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> FinetuneRun:
    """Return a run that was fine-tuned in inference mode, where a user's notebook may be."""
    with torch.inference_mode():
        out = tmp_path_factory.mktemp("calls") / "run"
        return osbert.finetune("classify", model=runs["encoder"], data=ROWS, out=out, **SMALL)


def test_training_leaves_inference_mode(trained: FinetuneRun) -> None:
    assert trained.metrics["accuracy"] >= 0


@pytest.mark.parametrize("form", ["run", "engine"])
def test_a_run_and_its_model_stand_for_their_folder(trained: FinetuneRun, form: str, tmp_path: Path) -> None:
    given = trained if form == "run" else trained.model
    (tmp_path / "data.csv").write_text("text,label\na good film,pos\na bad play,neg\n")
    assert osbert.load(given).folder == trained.folder
    expected = osbert.evaluate(trained.folder, data=ROWS)
    assert osbert.evaluate(given, data=ROWS) == expected
    assert osbert.predict(given, tmp_path / "data.csv", out=tmp_path / "out.csv").rows == 2
    assert len(osbert.compare([given, trained.folder], data=ROWS).runs) == 2
    again = osbert.finetune("classify", model=given, data=ROWS, out=tmp_path / "again", **SMALL)
    assert again.metrics.keys() == trained.metrics.keys()


def test_the_path_of_a_single_run_is_no_list_of_letters(trained: FinetuneRun) -> None:
    with pytest.raises(UserError) as single:
        osbert.compare([str(trained.folder)], data=ROWS)
    with pytest.raises(UserError) as text:
        osbert.compare(str(trained.folder), data=ROWS)
    assert str(text.value) == str(single.value)


@pytest.mark.parametrize("rows", [["a film"], None, torch.zeros(2, 3)])
@pytest.mark.parametrize("call", [osbert.predict, osbert.embed, osbert.score, osbert.explain])
def test_rows_in_memory_are_no_file(call: Callable[..., Any], rows: Any, trained: FinetuneRun, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        call(trained, rows, out=tmp_path / "out.csv")
    assert refused.value.code == "invalid-value"


def test_vectors_in_memory_are_no_file() -> None:
    with pytest.raises(UserError) as refused:
        osbert.search(torch.zeros(2, 3), "a film")  # type: ignore[arg-type]
    assert refused.value.code == "invalid-value"


def test_rows_of_a_text_and_its_list_of_labels(runs: dict[str, Path], tmp_path: Path) -> None:
    rows = [("a good film", ["art", "fun"]), ("the bad play", ["art"]), ("a play", [])] * 10
    run = osbert.finetune("multilabel", model=runs["encoder"], data=rows, out=tmp_path / "run", **SMALL)
    assert run.model.fine_tuned.labels == ("art", "fun")


def test_a_choice_needs_the_right_answer(runs: dict[str, Path], tmp_path: Path) -> None:
    rows = [("a good", ["film", "play"])] * 10
    with pytest.raises(UserError):
        osbert.finetune("choose", model=runs["encoder"], data=rows, out=tmp_path / "run", **SMALL)


def test_the_home_folder_of_paths(trained: FinetuneRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run").symlink_to(trained.folder)
    (tmp_path / "data.csv").write_text("text,label\na good film,pos\na bad play,neg\n")
    assert osbert.load("~/run").task is not None
    assert osbert.evaluate("~/run", data="~/data.csv") == osbert.evaluate("~/run", data={"dev": "~/data.csv"})
    osbert.predict("~/run", "~/data.csv", out="~/out.csv")
    assert (tmp_path / "out.csv").is_file()
    run = osbert.finetune("classify", model="~/run", data="~/data.csv", dev="~/data.csv", out=Path("~/tuned"), **SMALL)
    assert run.folder == tmp_path / "tuned"
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("A good film. A bad play.\n\n" * 20)
    osbert.train_tokenizer("~/texts", out="~/vocabulary", vocabulary=40)
    osbert.train_tokenizer(["~/texts"], out="~/same", vocabulary=40)
    assert osbert.build_corpus("~/texts/one.txt", tokenizer="~/same", out="~/corpus").documents == 20
    assert Output.of_words(["predict", "--model=~/run", "~/a", "--", "--model=~/run"])[1] == [
        "predict", f"--model={tmp_path}/run", "~/a", "--", "--model=~/run",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "event",
    [
        WorkProgress(of="predict", done=1, count=2),
        TrainingStart(processor="cpu", done=1, steps=2),
        RetrievalProgress(1, 2, "queries"),
        AnalysisProgress(done=1, count=2),
        DownloadProgress("a/b", "model.safetensors", 1, 2),
        DownloadProgress("a/b", "model.safetensors", 1, 0),
    ],
)
def test_events_are_lines(event: object) -> None:
    assert type(event).__name__ not in str(event)
    assert "1" in str(event) and "RunEnd" not in str(RunEnd())


def test_a_run_shows_its_scores(trained: FinetuneRun, tmp_path: Path) -> None:
    assert f"accuracy {trained.metrics['accuracy']:.4f}" in repr(trained)
    assert "gone" in repr(FinetuneRun(tmp_path / "gone"))


def test_none_is_the_default_of_dev_and_no_number(runs: dict[str, Path], tmp_path: Path) -> None:
    chosen = {"model": runs["encoder"], "data": ROWS, "out": tmp_path / "run", **SMALL}
    with pytest.raises(UserError) as refused:
        osbert.finetune("classify", learning_rate=None, **chosen)
    assert refused.value.code == "invalid-value"
    assert "accuracy" in osbert.finetune("classify", dev=None, **chosen).metrics


def test_pretraining_leaves_inference_mode(tmp_path: Path) -> None:
    texts = ["The cat sat. It ran.", "The dog ran. It sat."] * 100
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    osbert.train_tokenizer(texts, out=tmp_path / "vocabulary", vocabulary=60)
    osbert.build_corpus(tmp_path / "text.txt", tokenizer=tmp_path / "vocabulary", out=tmp_path / "corpus")
    sizes: dict[str, Any] = {"layers": 1, "width": 16, "heads": 2, "data_length": 32}
    with torch.inference_mode():
        run = osbert.pretrain("cpu", corpus=tmp_path / "corpus", out=tmp_path / "encoder", steps=1, batch=8, **sizes)
    assert run.metrics["step"] == 1
    assert osbert.load(run).task is None
