"""All settings of a fine-tuning: the defaults under what the command line says, and as the recipe that a run keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from osbert import components, recipe
from osbert.commands.finetune_search import Comparison
from osbert.tasks import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All settings of a run. `task` goes into the recipe under its own name."""

    task: Task
    path: str
    model: Path
    from_scratch: bool
    training: Any
    optimizer: Any
    comparison: Comparison

    def table(self) -> dict[str, Any]:
        """Return the resolved recipe as it is saved with the run."""
        comparison = {"comparison": recipe.as_table(self.comparison)} if self.comparison.wanted else {}
        return {
            "task": self.path,
            "model": str(self.model),
            "from_scratch": self.from_scratch,
            "training": recipe.as_table(self.training),
            "optimizer": recipe.as_table(self.optimizer),
            **comparison,
            self.task.name: recipe.as_table(self.task),
        }


def read_plan(task: str, settings: Sequence[str], *, model: Path, data: Path, from_scratch: bool) -> Plan:
    """Return the settings of a run: the defaults, under what the command line says.

    Raises UserError at an unknown task or setting, where the task's columns cannot be found, and where a search would
    overrule a setting.
    """
    wanted = schema(task)
    name = task.rpartition(".")[2]
    table = recipe.override({name: {"data": str(data)}}, settings, schema=wanted)
    built: Any = recipe.build(wanted, table, where="The command line")
    built.comparison.check(recipe.given(settings, schema=wanted))
    chosen: Task = getattr(built, name)
    return Plan(
        task=chosen.resolved(),
        path=task,
        model=model,
        from_scratch=from_scratch,
        training=built.training,
        optimizer=built.optimizer,
        comparison=built.comparison,
    )


def schema(task: str) -> type:
    """Return the dataclass of all settings, with the task's under its own name; UserError at an unknown task."""
    from osbert.commands.finetune_run import FinetuneOptimizer, FinetuneSettings

    kind = components.find("tasks", task, base=Task)
    parts: list[Any] = [
        ("training", FinetuneSettings),
        ("optimizer", FinetuneOptimizer),
        ("comparison", Comparison),
        (task.rpartition(".")[2], kind),
    ]
    return dataclasses.make_dataclass("Recipe", parts, frozen=True, kw_only=True)
