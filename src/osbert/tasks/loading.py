"""Reads the splits of a task before anything expensive begins, and tells every problem of every file at once."""

from __future__ import annotations

from collections.abc import Sequence

from osbert.errors import Problems, UserError
from osbert.tasks.contract import Task
from osbert.tasks.record import Record


def load(task: Task, splits: Sequence[str], *, fit: bool = True) -> tuple[Task, dict[str, list[Record]]]:
    """Read the splits, training first, and return the task, fitted if there are training rows, with their records.

    `fit` is False for a task that learnt its labels or its scale already.

    Raises one UserError that lists every problem of every file, labels unknown in training and development rows without
    one included.
    """
    problems = Problems(heading=f"{task.data} cannot be used for {task.name}")
    records: dict[str, list[Record]] = {}
    for split in splits:
        try:
            records[split] = _read(task, split, problems, training="train" in splits)
        except UserError as error:
            if str(error) not in problems.messages:  # one file may be read for both
                problems.add(str(error))
    if fit and records.get("train"):
        try:
            task = task.fitted(records["train"])
        except UserError as error:
            problems.add(str(error))
    for split, found in records.items():
        if found:
            task.check(found, problems)
        elif not problems.count:
            problems.add(
                f"the {split} rows: there are none. Put rows into that file. Without a file for development, a "
                "share of the training rows is held out (--held-out), if a label has two rows or more."
            )
    problems.stop_if_any()
    return task, records


def _read(task: Task, split: str, problems: Problems, *, training: bool) -> list[Record]:
    """Return the records of a split. With `training` the training rows are read, too, and tell what their file has."""
    noted = Problems(heading="") if training and task.shared(split) else problems
    before = noted.count
    found = list(task.records(split, noted))
    if split == "dev" and noted.count == before:
        note_unlabelled(found, problems)
    return found


def note_unlabelled(records: Sequence[Record], problems: Problems) -> None:
    """Note each record that has no label to compare a prediction with."""
    for record in records:
        if record.label is None:
            problems.add(
                f"{record.place}: there is no label to compare a prediction with. Write it, or leave the record out."
            )
