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
