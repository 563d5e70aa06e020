"""ERNIE (Sun et al. 2019, 2020): BERT, and with `use_task_id` a table of tasks beside that of segments.

Without that table a model computes the same as BERT and is written as such. `task_type_ids` are part of the column of
segments (models/transformer/embeddings.py); a folder of theirs and one of ours read task 0 where none is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import CLASSES, Family, Problem


def _tasks(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    used, tasks = config.get("use_task_id", False), config.get("task_type_vocab_size", 3)
    if not isinstance(used, bool):
        problem(f"use_task_id must be true or false, but is {used!r}.")
    elif used and (not isinstance(tasks, int) or isinstance(tasks, bool) or tasks < 1):
        problem(f"task_type_vocab_size must be a whole number of at least 1, but is {tasks!r}.")
    elif used:
        return {"tasks": tasks}
    return {}


FAMILY = Family(
    types=("ernie",),
    name="Ernie",
    varies=("activation", "segments", "direction", "tasks"),
    fits=lambda sizes: sizes.segments > 0 and sizes.tasks > 0,
    read=_tasks,
    written=lambda sizes: {"use_task_id": True, "task_type_vocab_size": sizes.tasks},
    classes={**CLASSES, "nsp": "ForNextSentencePrediction"},
    pretraining="ForPreTraining",
    causal="ForCausalLM",
)
