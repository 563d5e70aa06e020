"""Where a study meets a fine-tuning: all that studies use of runs/finetune to run a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from osbert.lock import locked
from osbert.runs.contract import Watch
from osbert.runs.finetune import train as finetune_train
from osbert.runs.finetune.events import Epoch
from osbert.runs.finetune.events import row as epoch_row
from osbert.runs.finetune.plan import FinetunePlan, read_plan
from osbert.runs.finetune.records import Splits
from osbert.runs.finetune.rows import FinetuneRows
from osbert.runs.finetune.run import tidy
from osbert.training.checkpoint import disk_needed
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder

REMARKS = finetune_train.REMARKS


def check(task: str, settings: Mapping[str, Any], *, model: Path, data: Path) -> None:
    """Raise UserError if a fine-tuning with these settings could not begin."""
    read_plan(task, settings, model=model, data=data)


def lay_out(plan: FinetunePlan, records: Sequence[Splits], watch: Watch) -> tuple[FinetunePlan, FinetuneRows]:
    """Return the plan of the trials, each of which opens the encoder anew, and the rows as that encoder reads them."""
    model = finetune_train.start(plan)
    plan = dataclasses.replace(plan, opening=plan.opening.again)
    finetune_train.introduce(plan, model, watch)
    return plan, finetune_train.lay_out(plan, records, model, watch)


@contextmanager
def opened(plan: FinetunePlan, rows: FinetuneRows, out: Path, watch: Watch) -> Iterator[RunFolder]:
    """Hold the folder of a comparison, begun now or before; UserError when it holds another one."""
    with disk_needed(out), locked(out):
        folder = finetune_train.opened(plan, rows, out)
        finetune_train.write_remarks(rows.remarks, out, watch)
        yield folder


def train(plan: FinetunePlan, rows: FinetuneRows, out: Path, watch: Watch, wish: Interruption | None) -> None:
    """Fine-tune once, into a run folder of its own."""
    finetune_train.train(plan, rows, finetune_train.start(plan), out, watch, wish)


def clear(folder: Path) -> None:
    """Remove what only training needs from the folder of a run that has failed."""
    tidy(folder)


def row(best: Mapping[str, Any]) -> str:
    """Return one line on the best epoch of a run, as run.json has it."""
    return epoch_row(Epoch(**best))
