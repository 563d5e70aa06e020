"""Read the splits of a task before any expensive work and report all problems together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from osbert.errors import Problems, UserError
from osbert.reading.memory import Data, tables
from osbert.tasks.contract import Task, TaskT
from osbert.tasks.record import Record


def with_data(task: TaskT, data: Data) -> TaskT:
    """Return the task that reads `data`: a path, rows in memory, or a mapping of splits to either (`reading.memory`).

    Rows in memory pass the same checks as a file; messages call them "row 3".

    Raises UserError if the data have an unknown form or no rows.
    """
    if isinstance(data, str | Path):
        return dataclasses.replace(task, data=str(data))
    return task.reader(task, tables(data)).attach_to(dataclasses.replace(task, data=""))


def load(task: TaskT, splits: Sequence[str], *, fit: bool = True) -> tuple[TaskT, dict[str, list[Record]]]:
    """Read the splits, training first, and return the task, fitted if there are training rows, with their records.

    `fit` is False for a task that has learnt its labels or its scale before.

    Raises a UserError that lists all problems of all files, including unknown labels and development rows without a
    label.
    """
    problems = Problems(heading=f"{task.source.called} cannot be used for {task.name}")
    records: dict[str, list[Record]] = {}
    for split in splits:
        try:
            # Problems of a file that has the rows of both splits are reported from the training rows alone.
            held_out = "train" in splits and task.source.is_held_out(split)
            split_problems = Problems(heading="") if held_out else problems
            before = split_problems.count
            records[split] = list(task.source.records(split, split_problems))
            if split == "dev" and split_problems.count == before:
                note_unlabelled(records[split], problems)
        except UserError as error:
            if str(error) not in problems.messages:  # one file may be read for both
                problems.add(str(error), code=error.code)
    if fit and records.get("train"):
        try:
            task = task.source.attach_to(task.fit(records["train"]))
        except UserError as error:
            problems.add(str(error), code=error.code)
    for split, split_records in records.items():
        if split_records:
            task.check(split_records, problems)
        elif not problems.count:
            problems.add(
                f"no row can be held out for development (--held-out): {task.source.indivisible}. Add rows, or give a "
                "file of development rows: --dev FILE."
                if task.source.is_held_out(split)
                else f"the {'data' if split == 'all' else split} file has no rows. Add rows, or remove the file.",
                code="no-data",
            )
    problems.stop_if_any()
    return task, records


def note_unlabelled(records: Sequence[Record], problems: Problems) -> None:
    """Report each record without a label to `problems`."""
    for record in records:
        if record.label is None:
            problems.add(
                f"{record.place}: there is no label to compare a prediction with. Add it, or remove the row.",
                code="missing-label",
            )


def findings(task: Task) -> list[str]:
    """Describe the data that were read, and the remarks of the fitted task on them."""
    return [*task.source.findings(), *task.description.remarks()]
