"""Every small recipe on a GPU: two runs of it end in the same bits, its losses are the CPU's, its layers compile."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from osbert import recipe
from osbert.runs.pretrain.pretraining import PretrainRequest, pretrain
from osbert.runs.pretrain.settings import read_settings
from recipe_corpora import RecipeCorpora

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
SETTINGS = {
    "steps": 4,
    "data.batch": 8,
    "data.length": 48,
    "long_share": 0.0,
    "log_every": 1,
    "checkpoint_every": 0,
    "evaluate_every": 0,
}
NAMES = [
    name
    for name in recipe.recipe_names()
    if "objectives" in recipe.read(name) and read_settings(name).model.width <= 256 and "base" not in name
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> RecipeCorpora:
    return RecipeCorpora(tmp_path_factory.mktemp("texts"))


def trained(name: str, corpus: Path, out: Path, **training: str | float) -> tuple[list[float], bytes]:
    """Pretrain for a few steps by a recipe; return the losses, which are finite, and the weights."""
    pretrain(PretrainRequest(recipe=name, settings=SETTINGS | training, corpus=corpus, out=out))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == training.get("steps", SETTINGS["steps"]) and all(map(math.isfinite, losses))
    return losses, (out / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("device", "precision"),
    [("cpu", "fp32"), *(pytest.param("cuda", kind, marks=needs_gpu) for kind in ("bf16", "fp32"))],
)
def test_two_runs_of_a_recipe_end_in_the_same_bits(name, device, precision, corpus, tmp_path) -> None:
    steps = 2 if device == "cpu" else SETTINGS["steps"]
    settings = {"device": device, "precision": precision, "compile": "no", "steps": steps}
    one, two = (trained(name, corpus(name), tmp_path / run, **settings) for run in ("one", "two"))
    assert one == two


@needs_gpu
@pytest.mark.parametrize("name", NAMES)
def test_the_losses_of_a_recipe_are_those_of_the_cpu(name, corpus, tmp_path) -> None:
    settings = {"precision": "fp32", "compile": "no", "dropout": 0.0, "attention_dropout": 0.0}
    settings = {key: value for key, value in settings.items() if "dropout" not in key or has(name, key)}
    one, two = (trained(name, corpus(name), tmp_path / kind, device=kind, **settings)[0] for kind in ("cpu", "cuda"))
    assert two == pytest.approx(one, rel=1e-3)


def has(name: str, setting: str) -> bool:
    return hasattr(read_settings(name).model, setting)


@needs_gpu
@pytest.mark.parametrize("name", NAMES)
def test_the_layers_of_a_recipe_compile(name, corpus, tmp_path) -> None:
    trained(name, corpus(name), tmp_path, device="cuda", precision="bf16", compile="yes")
