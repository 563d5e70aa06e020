"""All settings of a fine-tuning: the defaults under what the command line says, and as the recipe that a run keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from osbert import components, recipe
from osbert.errors import Problems
from osbert.interop.opening import CAREFUL, Opening
from osbert.runs.study.search import GRIDS, Comparison
from osbert.tasks import Task

FEW = 5e-4
"""The learning rate of adapters and of changes of low rank where none is given (Hu et al., table 9)."""


LEFT_OPEN = ("training.batch", "training.epochs", "optimizer.learning_rate")
"""The settings that few rows may change where they are not given (`defaults.resolved`)."""


class Settings(Protocol):
    """What a run asks of its settings, whether it learns one task or several."""

    @property
    def path(self) -> str:
        """Return the task's name, or its path."""
        ...

    @property
    def model(self) -> Path:
        """Return the folder of the encoder."""
        ...

    @property
    def from_scratch(self) -> bool:
        """Return whether the encoder starts from fresh weights."""
        ...

    @property
    def training(self) -> Any:
        """Return how training goes."""
        ...

    @property
    def optimizer(self) -> Any:
        """Return how gradients become weights."""
        ...

    @property
    def opening(self) -> Opening:
        """Return how the encoder's folder is opened."""
        ...

    def of(self, task: Task) -> Plan:
        """Return the settings of one task, which has learnt something by now."""
        ...

    def table(self) -> dict[str, Any]:
        """Return the resolved recipe as it is saved with the run."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All settings of a run. `task` goes into the recipe under its own name; `opening`, of the encoder, does not."""

    task: Task
    path: str
    model: Path
    from_scratch: bool
    training: Any
    optimizer: Any
    comparison: Comparison
    open: frozenset[str] = frozenset()
    """The settings that were left to osbert, by their dotted names: some of `LEFT_OPEN`."""
    opening: Opening = CAREFUL

    def of(self, task: Task) -> Plan:
        """Return the settings of the task, which has learnt something by now."""
        return dataclasses.replace(self, task=task)

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


def read_plan(
    task: str, settings: Sequence[str] | Mapping[str, Any], *, model: Path, data: Path, from_scratch: bool
) -> Plan:
    """Return the settings of a run: the defaults, under what the command line says.

    Raises UserError at an unknown task or setting, where the task's columns cannot be found, and where a search would
    overrule a setting.
    """
    wanted = schema(task)
    name = task.rpartition(".")[2]
    given = recipe.given(settings, schema=wanted)
    table = recipe.override({name: {"data": str(data)}}, settings, schema=wanted)
    built: Any = recipe.build(wanted, table, where="The command line")
    built.comparison.check(given)
    optimizer, tuning = built.optimizer, built.training.tuning
    chosen: Task = getattr(built, name)
    # Where the records of a step are each other's negatives, fewer of them are another task.
    fixed = built.defaults.settings == "paper" or chosen.whole
    open_ = frozenset() if fixed else frozenset(LEFT_OPEN) - given - frozenset(built.comparison.varied)
    if tuning != "full":
        check_few(built, from_scratch=from_scratch)
        if "optimizer.learning_rate" not in given:
            optimizer = dataclasses.replace(optimizer, learning_rate=FEW)
            open_ -= {"optimizer.learning_rate"}
    return Plan(
        task=chosen.resolved(),
        path=task,
        model=model,
        from_scratch=from_scratch,
        training=built.training,
        optimizer=optimizer,
        comparison=built.comparison,
        open=open_,
    )


def check_few(built: Any, *, from_scratch: bool) -> None:
    """Raise UserError when settings do not go with tuning few weights of an encoder that stays as it is."""
    tuning = built.training.tuning
    problems = Problems(heading=f"--tuning {tuning} cannot be used so")
    if from_scratch:
        problems.add("--from-scratch leaves no encoder to put it into: leave one of the two out.")
    if built.comparison.search in GRIDS:
        problems.add(f"--search {built.comparison.search} tries the rates of full fine-tuning: take --search optuna.")
    if tuning == "lora" and built.optimizer.method == "muon":
        problems.add("--optimizer.method muon moves whole matrices, of which none learns: leave it out.")
    problems.stop_if_any()


def schema(task: str) -> type:
    """Return the dataclass of all settings, with the task's under its own name; UserError at an unknown task."""
    from osbert.runs.finetune.settings import Defaults, FinetuneOptimizer, FinetuneSettings

    kind = components.find("tasks", task, base=Task, trust=True)  # the user has typed the name
    parts: list[Any] = [
        ("training", FinetuneSettings),
        ("optimizer", FinetuneOptimizer),
        ("comparison", Comparison),
        ("defaults", Defaults),
        (task.rpartition(".")[2], kind),
    ]
    return dataclasses.make_dataclass("Recipe", parts, frozen=True, kw_only=True)
