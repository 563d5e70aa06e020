"""The recipes of the lab resolve to what is stored as text.

After a wanted change: OSBERT_STORE=1 pytest tests/lab/recipes, and look at the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import osbert_lab
from osbert import recipe
from osbert.runs.pretrain.settings import read_settings

STORED = Path(__file__).parent
NAMES = sorted(path.stem for path in Path(osbert_lab.__file__).parent.glob("recipes/*.toml"))
PRETRAINING = [name for name in NAMES if "objectives" in recipe.read(name)]


def test_they_are_recipes_of_osbert() -> None:
    assert {*NAMES} <= {*recipe.recipe_names()}


@pytest.mark.parametrize("name", PRETRAINING)
def test_resolved_settings_are_as_stored(name) -> None:
    resolved = recipe.dump(recipe.as_table(read_settings(name)))
    path = STORED / f"{name}.txt"
    if os.environ.get("OSBERT_STORE"):
        path.write_text(resolved, encoding="utf-8")
    assert resolved == path.read_text(encoding="utf-8")


def test_nothing_is_stored_of_recipes_that_are_gone() -> None:
    assert sorted(path.stem for path in STORED.glob("*.txt")) == PRETRAINING


def test_gpt_is_the_published_one() -> None:
    """GPT (Radford et al. 2018), section 4.1; its code has the warm-up, the L2 of .01 and the epsilon."""
    settings = read_settings("gpt")
    steps, optimizer = settings.training.steps, settings.optimizer
    assert (settings.data.batch, settings.data.length, settings.model.length) == (64, 512, 512)
    assert (optimizer.learning_rate, optimizer.schedule, optimizer.weight_decay) == (2.5e-4, "cosine", 0.01)
    assert round(optimizer.warmup * steps) == 2_000
    assert (settings.model.activation, settings.model.normalization) == ("gelu_tanh", "post")


@pytest.mark.parametrize("name", ["gpt2", "gpt-small"])
def test_residual_projections_of_gpt2_start_smaller_by_the_root_of_twice_the_layers(name) -> None:
    """GPT-2 (Radford et al. 2019), section 2.3."""
    sizes = {"model.vocabulary": 50, "model.layers": 8, "model.width": 64, "model.heads": 2, "model.length": 8}
    backbone = read_settings(name, sizes).model.build()
    for block in backbone.blocks:
        for scaled, plain in ((block.attention.outward, block.attention.inward), (block.down, block.up)):
            ratio = float(scaled.weight.detach().std() / plain.weight.detach().std())
            assert ratio == pytest.approx(1 / 4, rel=0.05)
