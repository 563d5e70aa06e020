"""Fine-tuning as a function: an encoder becomes a model of a task, or of several tasks with one encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from osbert.interop.hub import locate
from osbert.lock import claim
from osbert.runs.contract import Watch, ignore
from osbert.runs.finetune import train as steps
from osbert.runs.finetune.defaults import fill_defaults
from osbert.runs.finetune.learning_curve import learning_curve
from osbert.runs.finetune.plan import FinetunePlan
from osbert.runs.finetune.records import Splits, read_tasks
from osbert.runs.finetune.result import FinetuneRun
from osbert.runs.study.folds import cross_validate
from osbert.runs.study.trials import compare
from osbert.tasks import Task
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder


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

    `task`: a name such as "classify" or "sst2", a Task, or a list of these. `data`: a file or folder; of several tasks
    a mapping from their names, or a folder that holds those of each. `settings`: any setting of `osbert finetune`, by
    its full name (**{"training.epochs": 4}) or its last part (epochs=4); one task's own of several have its name before
    them. `trust` and `verify` say how the model's folder is opened.

    `watch` is called with Notice, TrainingStart, Progress, Measurement and Epoch. A run that was stopped goes
    on when the same call is made again, and ends in the same weights: KeyboardInterrupt writes a checkpoint of the last
    whole step first. With `wish`, SIGINT and SIGTERM are caught while it trains; StopRequest is raised after the step.

    Raises UserError for what the user can mend: all that is wrong with names, settings and data at once.
    """
    tasks = [task] if isinstance(task, (str, Task)) else list(task)
    with claim(Path(out)) as folder:
        RunFolder(folder).refuse_foreign()
        plan, records = read_tasks(tasks, settings, model=locate(model, watch=watch).path, data=data, watch=watch)
        return finetune_plan(plan, records, folder, watch, wish)


def finetune_plan(
    plan: FinetunePlan,
    records: Sequence[Splits],
    out: Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
) -> FinetuneRun:
    """Fine-tune to the end, once or as often as a comparison wants, on the records of each task of the plan."""
    given = plan
    plan = fill_defaults(plan, [splits["train"] for splits in records], out, watch)
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
    return FinetuneRun(folder=out, development={task.name: own["dev"] for task, own in zip(plan.tasks, records)})
