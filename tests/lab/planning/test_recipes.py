"""Every packaged recipe can be planned with and benchmarked, and what is planned is of the recipe's family."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from osbert import recipe
from osbert.runs.pretrain.settings import read_settings
from osbert_lab.planning import benchmark, sizing
from osbert_lab.planning.speed import Peak
from quick_machine import use_quick_machine
from recipe_corpora import RecipeCorpora, needed

NAMES = [name for name in recipe.recipe_names() if "objectives" in recipe.read(name)]
SMALL = [name for name in NAMES if read_settings(name).model.width <= 128]
CHANGING = {
    *("layers", "width", "heads", "head_width", "feedforward", "embedding", "distinct", "vocabulary"),
    *("cells", "filters"),  # of recurrent layers
}
"""Settings of a model that follow its size, or the corpus."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> RecipeCorpora:
    return RecipeCorpora(tmp_path_factory.mktemp("texts"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 20 GFLOP/s that need not be measured."""
    use_quick_machine(monkeypatch)
    monkeypatch.setattr(benchmark, "loader_ceiling", lambda plan, length, seconds: 1e6)
    monkeypatch.setattr(benchmark, "peak", lambda processor: Peak(flops=1e12, source="none"))


def compared(name: str, corpus: Path, out: Path, *, gpu: bool = False, **settings: Any) -> sizing.SizeComparison:
    given = {"data.batch": 2, **settings}
    request = sizing.SizeRequest(recipe=name, settings=given, corpus=corpus, minutes=30, gpu=gpu)
    return sizing.plan_size(request, out=out)


@pytest.mark.parametrize(
    ("name", "gpu"), [*((name, False) for name in NAMES), ("albert-base", True), ("modernbert-base", True)]
)
def test_plan_compares_sizes_of_its_family_and_writes_the_best(name, gpu, corpus, tmp_path) -> None:
    base = read_settings(name)
    found = compared(name, corpus(name), tmp_path / "plan.toml", gpu=gpu)
    models = [row.size.sizes for row in found.estimates]
    assert len(set(models)) == len(models) >= len(sizing.plan_sizes.SIZES["cuda" if gpu else "cpu"])
    for model in models:
        assert not model.problems()
        for field in {field.name for field in dataclasses.fields(model)} - CHANGING:
            assert getattr(model, field) == getattr(base.model, field), field
        sizes, usual = ({name: getattr(one, name, 0) for name in CHANGING} for one in (model, base.model))
        assert bool(sizes["embedding"]) == bool(usual["embedding"]) and sizes["embedding"] < model.width
        assert bool(sizes["distinct"]) == bool(usual["distinct"])
        for name in ("feedforward", "cells", "filters"):
            assert sizes[name] == round(usual[name] * model.width / base.model.width)
    written = read_settings(str(tmp_path / "plan.toml"))
    assert written.model.replace(vocabulary=120) == found.best.size.sizes
    assert (written.objectives, written.optimizer.method) == (base.objectives, base.optimizer.method)


@pytest.mark.parametrize("name", SMALL)
def test_small_recipes_are_benchmarked(name, corpus, monkeypatch) -> None:
    made = corpus(name)

    def given(folder: Path, *, vocabulary: int, **kind: int) -> Any:
        assert kind == needed(name)
        return type("Made", (), {"folder": made})

    monkeypatch.setattr(benchmark, "synthetic_corpus", given)
    settings = {"data.batch": 2, "data.length": 16, "long_share": 0.0, "device": "cpu", "precision": "fp32"}
    figures = benchmark.measure_speed(name, settings, seconds=0.05)
    assert figures["objectives"] == [*read_settings(name).objectives]
    (phase,) = figures["phases"]
    assert phase["tokens_per_second"] > 0 and phase["flops_per_token"] > 0
