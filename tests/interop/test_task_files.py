"""Configs and recipes whose fields of a task are of other types than they should be: all are told, none is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from osbert.interop.task_files import TaskHint, read_task, task_of
from refusals import refusal


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ({"osbert_task": 5}, ("damaged-file", "config.json", "osbert_task", "5")),
        (
            {"osbert_task": {"name": "classify", "settings": 5}},
            ("invalid-value", "classify", "5"),
        ),
        ({"osbert_task": {"name": ["classify"]}}, ("unknown-component", "['classify']", "tasks")),
        (
            {"osbert_task": {"name": "classify", "settings": {"labels": 5}}},
            ("invalid-value", "labels", "5"),
        ),
        (
            {"architectures": 5, "id2label": ["a"]},
            ("damaged-file", "architectures", "id2label", "5"),
        ),
        ({"problem_type": ["regression"]}, ("damaged-file", "problem_type", "regression")),
    ],
)
def test_fields_of_other_types(config: dict[str, Any], refused: tuple[str, ...]) -> None:
    with refusal(*refused):
        task_of(config, {"classifier.weight": torch.zeros(2, 4)}, TaskHint(), where="config.json")


@pytest.mark.parametrize(
    ("recipe", "refused"),
    [
        ("task = 5", ("unknown-component", "5", "tasks")),
        ('task = "classify"\nclassify = 5', ("invalid-value", "classify", "5")),
    ],
)
def test_recipes_of_other_types(recipe: str, refused: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(recipe)
    with refusal(*refused):
        read_task(tmp_path)
