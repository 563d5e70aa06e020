"""osbert prune: a smaller run that predicts, is exported and is tuned further; and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from osbert.inference.engine import load
from osbert.runs.export import export
from osbert.runs.settings import ExportSettings
from osbert.tasks.kinds.classify import Classify
from osbert_lab.commands.prune import prune as command
from osbert_lab.pruning.prune import prune
from osbert_lab.pruning.settings import PruneSettings
from refusals import refusal
from tiny_runs import write_run


@pytest.fixture(scope="module")
def pruned(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pruned") / "small"
    command(run, out=out, settings=PruneSettings(heads=0.5))
    return out


def test_both_scores_stand_side_by_side(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = prune(run, settings=PruneSettings(heads=0.5), out=tmp_path / "small")
    whole = load(run).evaluate(*_development(run)).metrics["accuracy"]
    assert result.whole.score == whole and result.pruned.size < result.whole.size
    smaller = load(tmp_path / "small")
    assert smaller.evaluate(*_development(run)).metrics["accuracy"] == result.pruned.score
    assert smaller.learner.backbone.architecture.heads == result.heads
    lines = "\n".join(result.lines())
    assert f"{whole:.4f}" in lines and f"{result.pruned.score:.4f}" in lines


def _development(run: Path):
    from osbert.tasks import load as load_rows

    task, rows = load_rows(load(run).fine_tuned, ("dev",), fit=False)
    return task, rows["dev"]


def test_a_pruned_run_is_exported_with_equal_predictions(pruned: Path, tmp_path: Path) -> None:
    done = export(pruned, out=tmp_path / "onnx", settings=ExportSettings())
    assert done.comparison is not None and done.comparison.difference < 1e-4
    texts = ["a good film", "the poor actor"]
    first, second = (load(folder).predict(texts) for folder in (pruned, tmp_path / "onnx"))
    assert [one.value for one in first] == [one.value for one in second]


def test_layers_go_alone_or_with_heads(table: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", Classify(labels=("neg", "pos"), text="text"), layers=4, heads=4)
    result = prune(run, settings=PruneSettings(heads=0.3, layers=0.5, data=table), out=tmp_path / "both")
    assert (result.layers, result.heads) == (2, 3)
    prune(run, settings=PruneSettings(layers=0.2, data=table), out=tmp_path / "layers")
    smaller, whole = load(tmp_path / "layers").learner, load(run).learner
    assert smaller.backbone.architecture.layers == 3
    torch.testing.assert_close(smaller.heads["classify"].state_dict(), whole.heads["classify"].state_dict())


def test_what_cannot_be_pruned_is_refused_and_nothing_written(run: Path, encoder: Path, tmp_path: Path) -> None:
    heads = load(run).learner.backbone.architecture.heads
    for settings, values in (
        (PruneSettings(heads=0.4 / heads), ("--heads", heads)),
        (PruneSettings(layers=0.01), ("--layers", "0.01")),
    ):
        with refusal("invalid-value", *values):
            prune(run, settings=settings, out=tmp_path / "none")
    with refusal("unsupported-model", encoder):
        prune(encoder, settings=PruneSettings(heads=0.5), out=tmp_path / "none")
    few = tmp_path / "few.csv"
    few.write_text("text,label\n" + "a good film,pos\na bad film,neg\n" * 3)
    with refusal("too-little-data", "--data"):
        prune(run, settings=PruneSettings(heads=0.5, data=few), out=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    for shares, code in (
        ({}, "missing-option"),
        ({"heads": 1.0}, "invalid-value"),
        ({"layers": -0.1}, "invalid-value"),
    ):
        with refusal(code):
            prune(run, settings=PruneSettings(**shares))
