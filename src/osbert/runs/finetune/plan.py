"""All settings of a fine-tuning: defaults overlaid with the given settings, and the recipe that the run stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from osbert import components, peers, recipe
from osbert.errors import Problems, UnknownSetting, UserError
from osbert.extensions import advise_lab, extensions
from osbert.interop.opening import CAREFUL, Opening
from osbert.remote import local_data
from osbert.runs.finetune.settings import (
    GRIDS,
    Comparison,
    Defaults,
    FinetuneOptimizer,
    FinetuneSettings,
    ReportSettings,
    ScoreSettings,
    refuse_conflicts,
)
from osbert.tasks import Task, with_data
from osbert.tasks.tables.texts import joins_pairs
from osbert.training.tracking import require_trackers

ADAPTER_RATE = 5e-4
"""Default learning rate for adapters and LoRA (Hu et al., table 9)."""
LENGTH = ("training.batch", "training.epochs")
"""The settings that determine the number of steps."""
LEFT_OPEN = (*LENGTH, "optimizer.learning_rate", "training.few_shot")
"""Settings whose defaults depend on the number of rows (`fill_defaults`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetunePlan:
    """All settings of a run, with one task or several that share an encoder.

    `tasks` are stored in the recipe under their own names; `paths` are the names that the user gave. `opening` (of the
    encoder) and `learning_curve` are not stored.
    """

    tasks: tuple[Task, ...]
    paths: tuple[str, ...]
    model: Path
    from_scratch: bool
    training: Any
    optimizer: Any
    scores: Any
    comparison: Comparison
    open: frozenset[str] = frozenset()
    """Dotted names of the settings in `LEFT_OPEN`, and of scores.keep, that the user did not give."""
    given: frozenset[str] = frozenset()
    """Dotted names of the settings in `LEFT_OPEN` that the user gave although their defaults depend on the rows."""
    opening: Opening = CAREFUL
    learning_curve: bool = False
    further: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """Further tables of the recipe, by name, such as those of a distillation."""

    @classmethod
    def combine(cls, plans: Sequence[FinetunePlan]) -> FinetunePlan:
        """Return one plan for the tasks of several plans, which differ in nothing else."""
        return dataclasses.replace(
            plans[0],
            tasks=tuple(task for plan in plans for task in plan.tasks),
            paths=tuple(path for plan in plans for path in plan.paths),
            open=frozenset.intersection(*(plan.open for plan in plans)),
            given=frozenset.union(*(plan.given for plan in plans)),
        )

    @property
    def name(self) -> str:
        """The names of the tasks, separated by commas."""
        return ", ".join(self.paths)

    @property
    def task(self) -> Task:
        """The task of a run with one task."""
        [task] = self.tasks
        return task

    @property
    def pools(self) -> bool:
        """Whether the trained model has sentence vectors as pooled states, to which few-shot learning fits a layer."""
        few_shot = self.training.few_shot
        beside = few_shot == "linear-first" and joins_pairs(self.task)
        return few_shot != "none" and self.task.frozen_states == "pooled" and not beside

    def of(self, task: Task) -> FinetunePlan:
        """Return the plan of one of the tasks, given in its tuned form."""
        [path] = [path for path, plan_task in zip(self.paths, self.tasks) if plan_task.name == task.name]
        return dataclasses.replace(self, tasks=(task,), paths=(path,))

    def replace_settings(self, chosen: Mapping[str, Any]) -> FinetunePlan:
        """Return the plan with changed settings of training and optimiser, by their dotted names.

        They may come from a file in the run folder. Raises UserError if one has a wrong type.
        """
        parts: dict[str, Any] = {}
        for part in ("training", "optimizer"):
            before = getattr(self, part)
            values = {name.partition(".")[2]: value for name, value in chosen.items() if name.startswith(f"{part}.")}
            parts[part] = recipe.build(type(before), recipe.as_table(before) | values, where="The run folder")
        return dataclasses.replace(self, **parts)

    def table(self) -> dict[str, Any]:
        """Return the resolved recipe, as it is saved with the run."""
        comparison = {"comparison": self.comparison.table()} if self.comparison.wanted else {}
        scores = recipe.as_table(self.scores)
        return {
            **({"task": self.paths[0]} if len(self.paths) == 1 else {"tasks": list(self.paths)}),
            "model": str(self.model),
            "from_scratch": self.from_scratch,
            "training": recipe.as_table(self.training),
            "optimizer": recipe.as_table(self.optimizer),
            **({"scores": scores} if scores != recipe.defaults(type(self.scores)) else {}),
            **comparison,
            **self.further,
            **{task.name: recipe.as_table(task) for task in self.tasks},
        }

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the settings in `table`."""
        parts = {"training": self.training, "optimizer": self.optimizer, **{task.name: task for task in self.tasks}}
        return {name: recipe.defaults(type(part)) for name, part in parts.items()}


def read_plan(task: str | Task, settings: Mapping[str, Any], *, model: Path, data: Any) -> FinetunePlan:
    """Return the plan of a run with one task: the given settings over the defaults.

    Raises UserError for an unknown task or setting, for columns that cannot be detected, and if a given setting is one
    that a search varies.
    """
    path = name_of(task)
    name = path.rpartition(".")[2]
    settings, data = with_development(settings, data)
    call = call_schema(path)
    with naming_tasks():
        given = recipe.resolve_names(settings, schema=call)
    base = recipe.as_table(task) if isinstance(task, Task) else {}
    path_of_data = str(data) if isinstance(data, str | Path) else ""
    built = read_settings(call, name, settings, base | {"data": path_of_data})
    built.comparison.check(given)
    problems = Problems(heading="This run cannot begin")
    require_trackers(built.training.track, problems)
    problems.stop_if_any()
    optimizer = built.optimizer
    chosen: Task = getattr(built, name)
    if not path_of_data:  # rows in memory; a path may be overruled by the settings
        chosen = with_data(chosen, data)
    training = built.training
    if training.few_shot == "auto":  # as if it were not given: `fill_open` chooses by the number of rows
        given -= {"training.few_shot"}
        training = dataclasses.replace(training, few_shot="none")
    elif training.few_shot != "none":
        check_few_shot(built, chosen, given)
    # Where the records of a step are each other's negatives, fewer of them are another task.
    fixed = built.defaults.settings == "paper" or chosen.batching == "step"
    # The epoch to keep is open unless the user asks for a choice by the development rows.
    open_scores = set() if built.scores.patience or f"{name}.kept_by" in given else {"scores.keep"}
    open_ = frozenset() if fixed else frozenset({*LEFT_OPEN, *open_scores}) - given - frozenset(built.comparison.varied)
    if built.report.learning_curve and built.comparison.wanted:
        raise UserError(
            "--learning-curve cannot be combined with --seeds, --search or --folds. Remove one of the two.",
            code="options-exclude-each-other",
        )
    if training.tuning != "full":
        check_partial_tuning(built)
        if "optimizer.learning_rate" not in given:
            optimizer = dataclasses.replace(optimizer, learning_rate=ADAPTER_RATE)
    if built.report.learning_curve or built.comparison.wanted:
        find_study("comparison")  # it is refused here, before the rows are read
    return FinetunePlan(
        tasks=(chosen.source.resolve(),),
        paths=(path,),
        model=model,
        from_scratch=built.from_scratch,
        training=training,
        optimizer=optimizer,
        scores=built.scores,
        comparison=built.comparison,
        open=open_,
        given=frozenset() if fixed else frozenset(LEFT_OPEN) & {*given},
        opening=built.opening,
        learning_curve=built.report.learning_curve,
    )


def read_settings(call: type, task: str, settings: Mapping[str, Any], base: Mapping[str, Any]) -> Any:
    """Return the settings of a call as its schema (`call_schema`), over those of the `task` in `base`.

    Raises UserError for a wrong name, and one that lists all wrong values.
    """
    return recipe.build(call, recipe.override({task: dict(base)}, settings, schema=call), where="The call")


def with_development(settings: Mapping[str, Any], data: Any) -> tuple[Mapping[str, Any], Any]:
    """Return settings and data. Development rows in memory (`dev`) move to the data; a path remains a setting.

    >>> with_development({"dev": [("a text", "pos")]}, "train.csv")
    ({}, {'train': 'train.csv', 'dev': [('a text', 'pos')]})
    """
    # Rows are found under others' names, too: those of settings are translated later, and know texts and numbers only.
    named = {name: "dev" if peers.translate(name, "", {"dev"}) else name for name in settings}
    settings = {name: _as_path(value) if name.endswith(".dev") else value for name, value in settings.items()}
    if "dev" not in named.values():
        return settings, data
    settings = {named[name]: value for name, value in settings.items()}
    others = {name: value for name, value in settings.items() if name != "dev"}
    dev = settings["dev"]
    if dev is None:
        return others, data
    if isinstance(dev, str | Path):
        return {**others, "dev": _as_path(dev)}, data
    if isinstance(data, str | Path) and Path(data).is_dir():
        raise UserError(
            f"dev has rows in memory, but data is the folder {data}. Give the training file, or rows, as data.",
            code="invalid-value",
        )
    return others, {**(data if isinstance(data, Mapping) else {"train": data}), "dev": dev}


def _as_path(dev: Any) -> Any:
    """Return a path of development rows as a text, that of the copy for an address; rows in memory as they are."""
    path_or_rows = local_data(dev)
    return str(path_or_rows) if isinstance(path_or_rows, Path) else path_or_rows


def check_partial_tuning(built: Any) -> None:
    """Raise UserError if settings conflict with tuning few weights, or none, of a frozen encoder."""
    tuning, search = built.training.tuning, built.comparison.search
    muon = tuning == "lora" and built.optimizer.method == "muon"
    conflicts = {
        "--from-scratch has no pretrained weights to adapt. Remove one of the two.": built.from_scratch,
        f"--search {search} tries learning rates of full fine-tuning. Use --search optuna.": search in GRIDS,
        "--optimizer.method muon updates whole weight matrices, and LoRA freezes them. Remove it.": muon,
    }
    refuse_conflicts(f"--tuning {tuning} cannot be used with these settings", conflicts)


def check_few_shot(built: Any, task: Task, given: Collection[str]) -> None:
    """Raise UserError if few-shot learning does not support the task, or conflicts with given settings."""
    kind = built.training.few_shot
    contrastive = built.training.contrastive and (task.frozen_states != "pooled" or task.values != "classes")
    bring = f"{task.name} has no class for each text to bring alike vectors together."
    idle = {*LENGTH, "optimizer.learning_rate", "scores.evaluate_every", "scores.patience", "scores.keep"}
    idle |= {"comparison.search", "comparison.seeds"}  # the layer is the same for every seed
    conflicts = {
        f"{task.name} has no single layer to fit to the encoder's states. Remove --few-shot.": not task.frozen_states,
        f"{bring} Use --few-shot linear or linear-first.": bool(task.frozen_states) and contrastive,
        "--from-scratch has no pretrained vectors to build on. Remove one of the two.": built.from_scratch,
    } | {f"{flag(name)} has no effect. Remove it.": kind == "linear" for name in sorted(idle & {*given})}
    refuse_conflicts(f"--few-shot {kind} cannot be used with these settings", conflicts)


def flag(name: str) -> str:
    """Return the flag of a setting with this dotted name.

    >>> flag("optimizer.learning_rate")
    '--learning-rate'
    """
    return f"--{name.rpartition('.')[2].replace('_', '-')}"


def describe_settings(settings: Mapping[str, float | str]) -> str:
    """Return settings in words, by the last part of their names, "" for none.

    >>> describe_settings({"training.batch": 16, "optimizer.learning_rate": 5e-5})
    'batch 16, learning rate 5e-05'
    """
    leaves = {name.rpartition(".")[2].replace("_", " "): value for name, value in settings.items()}
    return ", ".join(f"{name} {value if isinstance(value, str) else f'{value:g}'}" for name, value in leaves.items())


def name_of(task: str | Task) -> str:
    """Return the name that selects a task: its own if osbert or a package lists it, else the path of its module."""
    return components.resolve_synonym("tasks", task) if isinstance(task, str) else components.name_in("tasks", task)


def schema(task: str) -> type:
    """Return the dataclass of all settings, with the task's under its name. Raises UserError for an unknown task."""
    task = name_of(task)
    kind = components.find("tasks", task, base=Task, trust=True)  # the user has typed the name
    tables = (
        ("training", FinetuneSettings),
        ("optimizer", FinetuneOptimizer),
        ("scores", ScoreSettings),
        ("comparison", Comparison),
        ("defaults", Defaults),
        ("report", ReportSettings),
        (task.rpartition(".")[2], kind),
    )
    return recipe.make_schema("Recipe", tables)


def schemas(tasks: Sequence[str]) -> list[type]:
    """Return the schema of each task of a run. Raises UserError that lists all unknown tasks."""
    if len(tasks) == 1:
        return [schema(tasks[0])]
    task_schemas, problems = [], Problems(heading="These tasks cannot be learnt together")
    for task in tasks:
        try:
            task_schemas.append(schema(task))
        except UserError as error:
            problems.add_from(task, error)
    problems.stop_if_any()
    return task_schemas


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallOptions:
    """The further keywords of a call."""

    from_scratch: bool = False
    opening: Opening


def call_schema(task: str) -> type:
    """Return the schema with the further keywords of a call: `from_scratch`, and those for opening the model."""
    return recipe.make_schema("Call", (), (CallOptions, schema(task)))


@contextmanager
def naming_tasks() -> Iterator[None]:
    """Name in the error at an unknown setting the tasks that have it, without data sets of such tasks."""
    try:
        yield
    except UnknownSetting as error:
        name = error.name.replace("-", "_")
        kinds = {task: components.find("tasks", task, base=Task) for task in components.names("tasks")}
        owners = {task: kind for task, kind in kinds.items() if name in {part for part, *_ in recipe.fields(kind)}}
        inherited = [task for task, kind in owners.items() if {*kind.__mro__[1:]} & {*owners.values()}]
        raise UnknownSetting(error.name, error.known, sorted({*owners} - {*inherited})) from error


def every_call_schema() -> list[type]:
    """Return the schema of a call for each task that is installed, for the signature of the function."""
    return [call_schema(task) for task in components.names("tasks")]


def find_study(name: str) -> Callable[..., None]:
    """Return what runs a fine-tuning several times: "comparison", "folds" or "learning_curve".

    Other packages add studies by entry points in the group `osbert.runs.finetune.studies`: functions of a plan, the
    records of each task, the run folder, `watch` and `wish`. Raises UserError if none is installed.
    """
    extension = extensions("osbert.runs.finetune.studies").get(name)
    if extension is None:
        raise UserError(
            f"--seeds, --search, --folds and --learning-curve need a package that adds studies.{advise_lab()}",
            code="unknown-component",
        )
    study: Callable[..., None] = extension.load()
    return study


class TaskSuite(Protocol):
    """A suite of data sets that `osbert finetune NAME` fine-tunes one by one, such as GLUE.

    Other packages add suites by entry points in the group `osbert.runs.finetune.suites`.
    """

    tasks: Sequence[str]
    """The names of its tasks, whose settings the command takes."""

    def finetune(self, **call: Any) -> Mapping[str, float]:
        """Fine-tune a run for each data set; return the scores. The keywords are those of `finetune`."""


def find_suite(tasks: Sequence[str]) -> TaskSuite | None:
    """Return the suite of data sets that a single word names, such as glue; None if the words name tasks."""
    extension = extensions("osbert.runs.finetune.suites").get(tasks[0]) if len(tasks) == 1 else None
    return extension.load() if extension else None
