"""Labelled rows of a run's fine-tuning task, in any file that the task can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from osbert.errors import Problems, UserError
from osbert.tasks import Record, Task
from osbert.terminal import format_count
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.sample import ItemSample, draw, split_by_name

TRIED = 20
"""Rows of a file that are tried; one with a label known to the task is enough."""


class LabelledRowForm(DataForm):
    """Labelled rows: only unseen ones if file names tell training rows apart, else all rows."""

    position = 8
    files = "labelled rows of a fine-tuned run's task"

    def knows(self, file: FileHead) -> bool:
        """Return whether the run's task can read the file and knows a label of its first rows."""
        if file.task is None or not file.lines:
            return False
        problems = Problems(heading="")
        try:
            # Reading may fail in many ways for a file of another kind; each of them means no.
            rows = list(islice(_rows(file.task, file.path, problems), TRIED))
        except (UserError, ValueError, OSError):
            return False
        return any(_fits(file.task, row) for row in rows)

    def sample(self, files: Sequence[Path], sampling: Sampling) -> ItemSample[Record]:
        """Return a sample of the labelled rows; training rows are left out if file names tell them apart."""
        task = sampling.task
        if task is None or not files:
            return ItemSample(items=[])
        problems = Problems(heading="These rows cannot be used (--errors replace leaves them out)")
        parts = split_by_name(files)
        rng = np.random.default_rng([sampling.options.seed, 4])
        # Rows that the run was trained on would flatter it.
        rows = (row for path in (parts["score"] if parts else files) for row in _rows(task, path, problems))
        items, read = draw((row for row in rows if row.label is not None), sampling.options.texts, rng)
        task.check(items, problems)
        if sampling.reading.errors == "strict":
            problems.stop_if_any()
        known = [row for row in items if _fits(task, row)]
        tokens = sum(len(example) for row in known for example in task.encode(row, sampling.packer))
        notes = [f"{format_count(len(known), 'labelled row')} of {read:,} read"] if read else []
        return ItemSample(items=known, read=read, tokens=tokens, notes=notes)


def _fits(task: Task, row: Record) -> bool:
    """Return whether a row has a label that the task knows."""
    problems = Problems(heading="")
    if row.label is not None:
        task.check([row], problems)
    return row.label is not None and not problems.count


def _rows(task: Task, path: Path, problems: Problems) -> Iterator[Record]:
    moved = task.source.switch_data(path, {})
    yield from moved.source.records("all", problems)
