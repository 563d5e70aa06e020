"""The tasks of a fine-tuning and their records, which are read and checked completely before training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from osbert.errors import Problems, UserError
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune.plan import FinetunePlan, name_of, read_plan, read_settings
from osbert.runs.finetune.warnings import Overlap, data_warnings, deduplicate, overlap
from osbert.runs.seen_texts import TELLING
from osbert.tasks import Record, Task, describe_skipped, findings, load
from osbert.terminal import one_line

SPLITS = ("train", "dev")
Splits = Mapping[str, Sequence[Record]]
"""The records of a task by split ("train", "dev")."""


def read_tasks(
    tasks: Sequence[str | Task], settings: Mapping[str, Any], *, model: Path, data: Any, watch: Watch = ignore
) -> tuple[FinetunePlan, list[Splits]]:
    """Return the plan of a run with fitted tasks, and the records of each; report descriptions and warnings.

    `data`: for one task, its data; for several, a mapping from their names, or a folder with the data of each.

    Raises UserError that lists everything wrong with the tasks' names, their data and the settings.
    """
    if len(tasks) == 1:
        plans = [_read(tasks[0], settings, model=model, data=data, watch=watch)]
    else:
        plans = _read_several(tasks, settings, model=model, data=data, watch=watch)
    warnings = []
    for plan, splits in plans:
        before = "" if len(plans) == 1 else f"{plan.task.name}: "
        warnings += report_data(plan.task, splits, watch, before=before)
    for text in warnings:
        watch(Notice(text, warning=True))
    return FinetunePlan.combine([plan for plan, _ in plans]), [splits for _, splits in plans]


def report_data(task: Task, records: Splits, watch: Watch, *, before: str = "") -> list[str]:
    """Report descriptions of the data; return warnings, which come after those of other tasks. `before`: its prefix."""
    repeats = overlap(task, records)  # all texts are compared: once for both
    for text in data_notices(task, records, repeats):
        watch(Notice(f"{before}{text}"))
    return [f"{before}{text}" for text in data_warnings(task, records, repeats)]


def data_notices(task: Task, records: Splits, repeats: Overlap) -> Iterator[str]:
    """Yield descriptions of the data: the form of each file, the columns, the rows, the labels."""
    yield from map(one_line, findings(task))
    for split, split_records in records.items():
        yield f"{split}: {one_line(task.description.describe_split(split_records))}"
    if skipped := describe_skipped(task, records["train"]):
        yield f"train: {one_line(skipped)}"
    if 0 < repeats.fraction < TELLING:  # else it is a warning
        yield repeats.description


def _read(
    task: str | Task, settings: Mapping[str, Any], *, model: Path, data: Any, watch: Watch
) -> tuple[FinetunePlan, dict[str, list[Record]]]:
    plan = read_plan(task, settings, model=model, data=data)
    fitted, records = load(plan.task, SPLITS)
    if plan.training.deduplicate:
        before = len(records["train"])
        records = deduplicate(records)
        left_out = f"{before - len(records['train']):,} of {before:,} training rows are left out (--deduplicate)"
        watch(Notice(f"{fitted.name}: {left_out}: their texts are in the development rows, too"))
    return dataclasses.replace(plan, tasks=(fitted,)), records


def _read_several(
    tasks: Sequence[str | Task], settings: Mapping[str, Any], *, model: Path, data: Any, watch: Watch
) -> list[tuple[FinetunePlan, dict[str, list[Record]]]]:
    from osbert.runs.finetune.rows import ModelReader

    names = {name_of(task): task for task in tasks}
    task_names = [name.rpartition(".")[2] for name in names]
    if len(set(task_names)) < len(tasks) or not tasks:
        raise UserError(
            f"The tasks {', '.join(map(name_of, tasks))} cannot be learnt together: give one task or more, each once.",
            code="duplicate-name" if tasks else "missing-value",
        )
    if "dev" in settings:
        raise UserError(
            f"--dev applies to one task. Give each task its own, such as --{task_names[0]}.dev FILE.",
            code="ambiguous-setting",
        )
    folders = data_of(names, data)
    reader = ModelReader.of(model)
    problems = Problems(heading="These tasks cannot be learnt together")
    plans = []
    for name, task in names.items():
        try:
            plan, records = _read(
                task, own_settings(settings, name, names), model=model, data=folders[name], watch=watch
            )
            if plan.comparison.wanted or plan.learning_curve:
                raise UserError(
                    "--seeds, --search, --folds and --learning-curve work for one task at a time. Fine-tune "
                    "each by itself.",
                    code="options-exclude-each-other",
                )
            reader.check(plan.task, records)
        except UserError as error:
            problems.add_from(name, error)
            continue
        plans.append((plan, records))
    problems.stop_if_any()
    return plans


def check_settings(tasks: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise UserError that lists wrong names and values of the settings of each task. No data is read."""
    problems = Problems(heading="These tasks cannot be learnt together")
    names = [name_of(task) for task in tasks]
    for name in names:
        try:
            read_settings(name, own_settings(settings, name, names))
        except UserError as error:
            if len(names) == 1:
                raise
            problems.add_from(name, error)
    problems.stop_if_any()


def own_settings(settings: Mapping[str, Any], task: str, tasks: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of one task: without those of the other tasks, and without its prefix.

    >>> own_settings({"epochs": 2, "mrpc.length": 256}, "rte", ["rte", "mrpc"])
    {'epochs': 2}
    """
    foreign = tuple(f"{name.rpartition('.')[2]}." for name in tasks if name != task)
    return {name: value for name, value in settings.items() if not name.startswith(foreign)}


def data_of(names: Iterable[str], data: Any) -> dict[str, Any]:
    """Return the data of each task: from a mapping, or the file or folder with the task's name in a folder."""
    if not isinstance(data, Mapping):
        return {name: Path(data) / _entry(name, Path(data)) for name in names}
    data = {name_of(name): task_data for name, task_data in data.items()}
    if unlike := {*names} ^ {*data}:
        raise UserError(
            f"data must have exactly one entry for each task; it differs in {', '.join(unlike)}.",
            code="invalid-value",
        )
    return data


def _entry(name: str, data: Path) -> str:
    """Return the entry of a folder with a task's name: "SST-2" for sst2, or sst2.csv; by default the name."""
    name = name.rpartition(".")[2]
    entries = sorted(data.glob("*"), key=lambda path: (path.is_dir(), path.name))  # of two of one name the folder
    names_by_stem = {(path if path.is_dir() else Path(path.name.partition(".")[0])).name: path.name for path in entries}
    plain = {stem.lower().replace("-", ""): entry for stem, entry in names_by_stem.items()}
    return plain.get(name.lower(), name)
