"""The task that a model was fine-tuned for: from a run's recipe, or inferred from a config.json.

A run's recipe.toml has all settings. A Hugging Face folder that osbert wrote has them in a field of its config. For
other folders the class of the model, the shape of its last layer and the names of its labels are used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from osbert import components, recipe
from osbert.errors import Problems, UserError
from osbert.interop.huggingface.family import CLASSES
from osbert.interop.huggingface.names import PROBLEMS, RERANKERS
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.forms import Form, Values
from osbert.training.run_folder import RECIPE

if TYPE_CHECKING:
    from osbert.tasks import Task

FIELD = "osbert_task"
"""A config field of our own: the task's name and settings."""

LAYERS = ("classifier.", "qa_outputs.")
"""Prefixes of the last layer, of texts or tokens and of spans."""


FIELD_TYPES: Mapping[str, tuple[type, str]] = {
    FIELD: (dict, "a table"),
    "architectures": (list, "a list of names"),
    "id2label": (dict, "a table of names"),
    "problem_type": (str, "a word"),
}
"""The config fields about a task, and their types."""

NOT_NEEDED = "--task and --labels are for folders without a task. Remove them"

UNKNOWN = "the folder names no task: give --task, such as --task classify --labels no,yes"


@dataclass(frozen=True, kw_only=True)
class TaskHint:
    """The kind of task and the labels in order, given by the user for a folder that does not contain them."""

    kind: str | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FolderTask:
    """A folder's task, or None; `reason`: why its last layer cannot be used.

    `order`: the permutation of the last layer's rows to the order of the task's labels; () for no change.
    """

    task: Task | None = None
    order: tuple[int, ...] = ()
    reason: str = ""


def read_task(folder: Path, opening: Opening = CAREFUL) -> Task | None:
    """Return the task that a run was fine-tuned for, from its recipe.toml, or None.

    Raises UserError if the task is code outside osbert, which is imported only if `opening` trusts the folder.
    """
    path = folder / RECIPE
    table = recipe.read(path) if path.is_file() else {}
    if "task" not in table:
        return None
    name = str(table["task"])
    return _build_task(name, table.get(name.rpartition(".")[2], {}), where=str(path), trust=opening.trust)


def as_recipe(task: Task) -> str:
    """Return the text of a recipe.toml with the task only, without the paths of its data."""
    return recipe.dump({"task": components.name_in("tasks", task), task.name: _settings(task)})


def as_field(task: Task) -> dict[str, Any]:
    """Return the value of FIELD for a task: its name and settings."""
    return {"name": task.name, "settings": _settings(task)}


def task_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor], hint: TaskHint, *, where: str) -> FolderTask:
    """Return the task of a folder that has no recipe. `tensors`: by Hugging Face's names without prefix.

    Raises UserError if the user's hint does not fit, or a field of our own is damaged.
    """
    _check_forms(config, where)
    field = config.get(FIELD)
    if field is not None:
        name = str(field.get("name", ""))
        if hint != TaskHint():
            raise UserError(f"{where} already has the task {name}: {NOT_NEEDED}.", code="options-exclude-each-other")
        if "." in name:  # a file from elsewhere does not say which code is imported
            raise UserError(
                f"{where}: {FIELD} names {name}, which is not one of osbert's tasks.", code="untrusted-code"
            )
        return FolderTask(task=_build_task(name, field.get("settings", {}), where=where))
    outputs = next((tensors[name].shape[:1].numel() for name in map("{}weight".format, LAYERS) if name in tensors), 0)
    if not outputs:
        return FolderTask()
    kind = _kind_asked(hint.kind) if hint.kind else _kind_of(*_form(config, tensors, outputs))
    if kind is None:
        return FolderTask(reason=UNKNOWN)
    if kind.published_outputs:
        name, wanted = kind.__module__.rpartition(".")[2], kind.published_outputs
        if hint.labels:
            raise UserError(
                f"--labels names classes or tags; the model in {where} is for {name}, which has none.",
                code="options-exclude-each-other",
            )
        if outputs != wanted:
            return FolderTask(reason=f"{name} has {wanted} outputs, this layer has {outputs}")
        return FolderTask(task=kind())
    try:
        task, order = kind.of_labels(_labels(config, hint, outputs, where))
    except ValueError as error:
        return FolderTask(reason=str(error))
    return FolderTask(task=task, order=order)


def _build_task(name: str, settings: object, *, where: str, trust: bool = False) -> Task:
    """Return the task with this name and settings. Raises UserError if the name or a setting is unknown."""
    try:
        kind = _find_kind(name, trust=trust)
    except UserError as error:
        raise UserError(f"{where}: {error}", code=error.code) from error
    if not isinstance(settings, Mapping):
        raise UserError(
            f"{where}: the settings of the task {name} must be a table, but are {settings!r}.", code="invalid-value"
        )
    return recipe.build(kind, settings, where=where)


def _find_kind(name: str, *, trust: bool = False) -> type[Task]:
    from osbert.tasks import Task  # with all readers of data: an encoder without a task needs none of them

    kind: type[Task] = components.find("tasks", name, base=Task, trust=trust)
    return kind


def _check_forms(config: Mapping[str, Any], where: str) -> None:
    problems = Problems(heading=f"The config of {where} cannot be read")
    for name, (form, words) in FIELD_TYPES.items():
        if config.get(name) is not None and not isinstance(config[name], form):
            problems.add(f"{name} must be {words}, but is {config[name]!r}.", code="damaged-file")
    problems.stop_if_any()


def _settings(task: Task) -> dict[str, Any]:
    return recipe.as_table(dataclasses.replace(task, data=""))


def _form(config: Mapping[str, Any], tensors: Mapping[str, Tensor], outputs: int) -> tuple[Form, Values]:
    """Return the form of a Hugging Face model's outputs; "" if its config does not determine it."""
    if "qa_outputs.weight" in tensors:
        return "span", "classes"
    classes = [str(name) for name in config.get("architectures") or ()]
    form: Form = next((form for name in classes for form, end in CLASSES.items() if name.endswith(end)), "")
    problem = config.get("problem_type")
    if form != "sequence":
        return form, "classes"
    if problem is None and outputs == 1:
        return form, "relevance" if any(config.get(name) is not None for name in RERANKERS) else "numbers"
    return form, next((values for values, name in PROBLEMS.items() if name == problem), "classes")


def _kind_asked(name: str) -> type[Task]:
    """Return the kind of task that the user names. Raises UserError if it is unknown or cannot use foreign models."""
    kind = _find_kind(name, trust=True)  # typed by the user
    if kind.published_outputs is None:
        raise UserError(
            f"--task {name}: models of other libraries cannot be read for this task.", code="unknown-component"
        )
    return kind


def _kind_of(form: Form, values: Values) -> type[Task] | None:
    """Return the kind of task for Hugging Face models of a form, or None."""
    for name in components.names("tasks"):
        kind = _find_kind(name)
        declares = vars(kind).get("published_outputs") is not None  # itself: a data set only inherits it
        if declares and (kind.form, kind.values) == (form, values):
            return kind
    return None


def _labels(config: Mapping[str, Any], hint: TaskHint, count: int, where: str) -> tuple[str, ...]:
    """Return the names of the labels in the order of the outputs."""
    names = config.get("id2label")
    config_labels = {str(index): str(name) for index, name in names.items()} if isinstance(names, dict) else {}
    labels = hint.labels or tuple(config_labels.get(str(index), f"LABEL_{index}") for index in range(count))
    if len(labels) != count:
        raise UserError(
            f"--labels has {len(labels)} names, but the model in {where} has {count} outputs.",
            code="wrong-number-of-values",
        )
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(
            f"{where}: two outputs have the name '{twice[0]}'. Name them: --labels a,b,...", code="duplicate-name"
        )
    return labels
