"""Where a study meets a fine-tuning: all that studies use of runs/finetune to run a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from osbert.runs.finetune import train as finetune_train
from osbert.runs.finetune.plan import Plan, read_plan
from osbert.runs.finetune.rows import Rows
from osbert.runs.finetune.run import Epoch, tidy
from osbert.tasks import Record, Task
from osbert.training.run_folder import RunFolder

REMARKS = finetune_train.REMARKS


def check(task: str, settings: Sequence[str], *, model: Path, data: Path) -> None:
    """Raise UserError if a fine-tuning with these words of a command line could not begin."""
    read_plan(task, settings, model=model, data=data, from_scratch=False)


def lay_out(plan: Plan, records: Mapping[str, Sequence[Record]]) -> tuple[Plan, Rows]:
    """Return the plan of the trials, each of which opens the encoder anew, and the rows as that encoder reads them."""
    model = finetune_train.start(plan)
    plan = dataclasses.replace(plan, opening=plan.opening.again)
    finetune_train.tell_model(plan, model)
    return plan, finetune_train.lay_out(plan, records, model)


@contextmanager
def opened(plan: Plan, rows: Rows, out: Path) -> Iterator[RunFolder]:
    """Hold the folder of a comparison, begun now or before; UserError when it holds another one."""
    with finetune_train.writing(out):
        folder = finetune_train.opened(plan, rows, out)
        finetune_train.write_remarks(rows.remarks, out)
        yield folder


def train(plan: Plan, rows: Rows, out: Path) -> None:
    """Fine-tune once, into a run folder of its own."""
    finetune_train.train(plan, rows, finetune_train.start(plan), out)


def clear(folder: Path) -> None:
    """Remove what only training needs from the folder of a run that has failed."""
    tidy(folder)


def row(best: Mapping[str, Any]) -> str:
    """Return one line on the best epoch of a run, as run.json has it."""
    return finetune_train.row(Epoch(**best))


def end(folder: RunFolder, task: Task) -> Epoch:
    """Report the best epoch of a finished run, and return it."""
    best = Epoch(**folder.facts["finished"]["best"])
    finetune_train.tell_end(best, folder.folder, task)
    return best
