"""Fine-tuning as a function: trains an encoder on a task, or on several tasks together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from osbert.interop.hub import locate
from osbert.lock import claim
from osbert.remote.addresses import local_data
from osbert.remote.cache import reading_copies
from osbert.remote.output_folders import FolderForm, output_folder
from osbert.runs.contract import Watch, ignore
from osbert.runs.finetune import train as steps
from osbert.runs.finetune.defaults import fill_open
from osbert.runs.finetune.learning_curve import learning_curve
from osbert.runs.finetune.plan import FinetunePlan
from osbert.runs.finetune.records import Splits, read_tasks
from osbert.runs.finetune.result import FinetuneRun
from osbert.runs.study.folds import all_rows, cross_validate
from osbert.runs.study.trials import compare
from osbert.tasks import Record, Task
from osbert.training.checkpoint import CHECKPOINTS
from osbert.training.interruption import Interruption
from osbert.training.run_folder import FACTS, RunFolder

FORM = FolderForm(marker=FACTS, scratch=(CHECKPOINTS,))
"""A run folder on an object store."""


def finetune(
    task: str | Task | Sequence[str | Task],
    /,
    *,
    model: str | Path,
    data: Any,
    out: str | Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
    **settings: Any,
) -> FinetuneRun:
    """Fine-tune an encoder on a task, or on several together, into the run folder `out`; return the run.

    An `out` on an object store is uploaded when the run is finished.

    `task`: a name such as "classify" or "sst2", a Task, or a list of these. `data`: a file or folder; for several tasks
    a mapping from their names, or a folder with the data of each. `settings`: any setting of `osbert finetune`, by its
    full name (**{"training.epochs": 4}) or its last part (epochs=4); settings of one of several tasks are prefixed with
    the task's name. `trust` and `verify` apply to opening the model's folder.

    `watch` is called with Notice, TrainingStart, Progress, Measurement and Epoch. The same call resumes a stopped run
    and gives the same weights: KeyboardInterrupt first writes a checkpoint of the last whole step. With `wish`, SIGINT
    and SIGTERM are caught during training, and StopRequest is raised after the step.

    Raises UserError that lists everything wrong with names, settings and data.
    """
    tasks = [task] if isinstance(task, (str, Task)) else list(task)
    inputs = [path for path in (model, data) if isinstance(path, str | Path)]
    with output_folder(out, FORM, inputs=inputs) as output, claim(output.path) as folder, reading_copies():
        RunFolder(folder).refuse_foreign()
        model_path = locate(model, watch=watch).path
        plan, records = read_tasks(tasks, settings, model=model_path, data=local_data(data), watch=watch)
        run = finetune_plan(plan, records, folder, watch, wish)
    return run if output.path == Path(out) else replace(run, folder=Path(out))


def _development(plan: FinetunePlan, records: Sequence[Splits]) -> list[Sequence[Record]]:
    """Return the rows by which epochs are chosen: of each task, and with folds also about those of one fold."""
    development: list[Sequence[Record]] = [splits["dev"] for splits in records]
    if plan.comparison.folds:
        rows = all_rows(plan.task, records[0])
        development.append(rows[: len(rows) // plan.comparison.folds])
    return development


def finetune_plan(
    plan: FinetunePlan,
    records: Sequence[Splits],
    out: Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
) -> FinetuneRun:
    """Fine-tune to the end on the records of each task, once or for each run of a comparison."""
    given = plan
    plan = fill_open(plan, [splits["train"] for splits in records], _development(plan, records), out, watch)
    if plan.comparison.folds:
        cross_validate(plan, records, out, watch, wish)
    elif plan.comparison.wanted:
        compare(plan, records, out, watch, wish)
    else:
        model = steps.start(plan)
        steps.introduce(plan, model, watch)
        steps.train(plan, steps.lay_out(plan, records, model, watch), model, out, watch, wish)
        if plan.learning_curve:
            learning_curve(given, records[0], out, watch, wish)
    steps.conclude(plan, out, watch)
    return FinetuneRun(folder=out, development={task.name: splits["dev"] for task, splits in zip(plan.tasks, records)})
