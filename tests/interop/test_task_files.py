"""Configs and recipes whose fields of a task are of other types than they should be: all are told, none is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from osbert.errors import UserError
from osbert.interop.task_files import TaskHint, read_task, task_of


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"osbert_task": 5}, "osbert_task must be a table, but is 5"),
        (
            {"osbert_task": {"name": "classify", "settings": 5}},
            "settings of the task classify must be a table, but are 5",
        ),
        ({"osbert_task": {"name": ["classify"]}}, r"There is no '\['classify'\]' in tasks"),
        ({"osbert_task": {"name": "classify", "settings": {"labels": 5}}}, "labels"),
        (
            {"architectures": 5, "id2label": ["a"]},
            r"(?s)architectures must be a list.*id2label must be a table",
        ),
        ({"problem_type": ["regression"]}, "problem_type must be a word"),
    ],
)
def test_fields_of_other_types(config: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        task_of(config, {"classifier.weight": torch.zeros(2, 4)}, TaskHint(), where="config.json")


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        ("task = 5", "There is no '5' in tasks"),
        ('task = "classify"\nclassify = 5', "settings of the task classify must be a table, but are 5"),
    ],
)
def test_recipes_of_other_types(recipe: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(recipe)
    with pytest.raises(UserError, match=text):
        read_task(tmp_path)
