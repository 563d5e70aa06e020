"""Which heads matter: gradients of gates are finite differences, dead heads have none, and losses are those without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import osbert
import tiny_runs
from osbert.data.batch import collate
from osbert.inference.engine import Engine, load
from osbert_lab.analysis.hooks import gate_heads
from osbert_lab.analysis.importance import HeadImportance, layer_normalised
from osbert_lab.analysis.kinds.importance import MaskedImportance
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.sample import TextSample, punctuation, text_sample
from refusals import refusal

SETTINGS = {"texts": 40, "shortest": 3, "length": 16, "device": "cpu"}


def analysed(engine: Engine) -> AnalysedModel:
    signs = punctuation(engine.tokenizer)
    return AnalysedModel(
        learner=engine.learner, packer=engine.packer, signs=signs, seed=0, masks=engine.masks, task=engine.task
    )


def texts(engine: Engine) -> TextSample:
    given = ["the good film .", "a bad play", "the poor actors , the fine play .", "the film"] * 6
    return text_sample(given, engine.packer, count=24, shortest=1, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    made = load(tiny_runs.write_run(tmp_path_factory.mktemp("masks") / "run", None, masks=True), device="cpu")
    with torch.no_grad():
        for weight in made.learner.backbone.parameters():
            if weight.ndim == 2:
                weight *= 8  # fresh weights are so small that a finite difference is lost in rounding
    return made


def test_the_importance_is_the_mean_size_of_the_losss_slope(engine: Engine) -> None:
    model, kind = analysed(engine), MaskedImportance()
    found = kind.measure(model, texts(engine), lambda tokens: None)
    items = kind.items(model, texts(engine))[::2]
    heads = sum(one.name == "gradient" and one.where["layer"] == 1 for one in found)
    layers = len(model.backbone.mixers)
    step, slopes = 1e-2, np.zeros((layers, heads))
    for item in items:
        batch = collate(item)
        for index in np.ndindex(layers, heads):
            ends = []
            for sign in (1, -1):
                gates = torch.ones(layers, heads)
                gates[index] += sign * step
                loss = kind.loss(replace(model, learner=gate_heads(model.learner, gates)))
                with torch.no_grad():
                    ends.append(float(loss(batch).total / loss(batch).count))
            slopes[index] += abs(ends[0] - ends[1]) / (2 * step) / len(items)
    names = {name: [one.value for one in found if one.name == name] for name in ("gradient", "importance")}
    assert names["gradient"] == pytest.approx(slopes.ravel(), rel=0.02, abs=1e-5)
    assert names["importance"] == pytest.approx(layer_normalised(slopes).ravel(), rel=0.05, abs=1e-3)


def test_a_head_that_nothing_reads_has_no_importance_and_goes_without_a_loss(engine: Engine) -> None:
    weight = engine.learner.backbone.mixers[0].weight
    kept = weight.data.clone()
    assert isinstance(weight.data, torch.Tensor)
    try:
        weight.data[:, : weight.shape[1] // 2] = 0
        found = MaskedImportance().measure(analysed(engine), texts(engine), lambda tokens: None)
    finally:
        weight.data.copy_(kept)
    [dead] = [one for one in found if one.name == "importance" and one.where == {"layer": 1, "head": 1}]
    assert dead.value == 0
    [least] = [one for one in found if one.name == "ablation_rise" and one.where["without"] == "the least important"]
    assert least.where["heads"] == "1-1" and least.value == 0 and least.interval == (0, 0)
    [whole] = [one for one in found if one.name == "ablation_loss" and not one.where["count"]]
    model, kind = analysed(engine), MaskedImportance()
    assert whole.value > 0 and whole.n == 12
    assert kind.work(model, texts(engine)) > 0 and not kind.obstacle(model)


def test_a_model_without_a_loss_of_masks_says_so(runs: dict[str, Path]) -> None:
    tuned = load(runs["classifier"], device="cpu")
    assert "masked" in MaskedImportance.obstacle(analysed(tuned))
    assert issubclass(MaskedImportance, HeadImportance)


def test_a_fine_tuned_run_is_measured_on_labelled_rows(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = ["text,label", *["the good film,pos", "a bad play,neg"] * 12, "the film,none"]
    (folder / "dev.csv").write_text("\n".join(rows))
    (folder / "text.txt").write_text("the good film\n\na bad play")
    with refusal("unknown-label", "none"):
        osbert.analyse(runs["classifier"], data=folder, out=tmp_path / "out", **SETTINGS)
    found = osbert.analyse(runs["classifier"], data=folder, out=tmp_path / "out", errors="replace", **SETTINGS)
    assert any("24 labelled rows of 25 read" in note for note in found.notes)
    whole = found.figure("ablation_accuracy", without="all heads")
    assert whole.n == 12 and whole.interval and 0 <= whole.value <= 1 and whole.data == "rows"
    assert "Which heads matter to the task" in (tmp_path / "out" / "report.html").read_text()
    assert any(note.startswith("importance: ") for note in found.notes)
