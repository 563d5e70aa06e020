"""Fine-tuning as a function: trains an encoder on a task, or on several tasks together, and returns the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, overload

from osbert.errors import UserError
from osbert.evaluation.bootstrap import ScoreInterval
from osbert.interop.hub import locate
from osbert.lock import claim
from osbert.remote import FolderForm, local_data, output_folder, reading_copies
from osbert.runs.contract import Run, Watch, ignore
from osbert.runs.finetune import train as steps
from osbert.runs.finetune.defaults import fill_open
from osbert.runs.finetune.plan import FinetunePlan, find_study
from osbert.runs.finetune.records import Splits, read_tasks
from osbert.tasks import Prediction, Record, Task
from osbert.training.checkpoint import CHECKPOINTS
from osbert.training.interruption import Interruption
from osbert.training.run_folder import FACTS, RunFolder


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A development row whose prediction differs from its label.

    `error`: that of the task's outcome (`Task.outcome`): for a classifier 1 minus the probability of the label, for a
    number the absolute difference. `path` and `line`: the row's file and line. Of rows in memory `path` is the split or
    "", and `line` the number from 1 (`unit` is "row"), or that in the index of a DataFrame (`unit` is "index").
    """

    texts: tuple[str, ...]
    label: Any
    prediction: Prediction
    error: float
    path: str = ""
    line: int = 0
    unit: str = "line"

    def __str__(self) -> str:
        """Return one line: file and line, label, prediction, and texts."""
        place = f"{self.unit} {self.line}: " if self.path or self.unit != "line" else ""
        where = f"{self.path}, {place}" if self.path else place
        return f"{where}{self.label!r}, predicted {self.prediction.value!r}: {' | '.join(self.texts)}"


@dataclass(frozen=True)
class FinetuneRun(Run):
    """A finished fine-tuning. `development`: the development rows of each task, by its name.

    >>> import osbert
    >>> run = osbert.finetune("classify", model="encoder", data="more.csv", out="classifier", epochs=1, batch=8)
    >>> 0 <= run.metrics["accuracy"] <= 1, run.folder.name
    (True, 'classifier')
    >>> [mistake.error for mistake in run.errors] == sorted((one.error for one in run.errors), reverse=True)
    True
    >>> run.predict(["the good film"])[0].value in ("neg", "pos")
    True
    """

    reported: ClassVar[tuple[str, ...]] = ("folder", "metrics")

    development: Mapping[str, Sequence[Record]] = field(default_factory=dict, repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The scores of the kept epoch on the development rows; its weights are the model's."""
        return dict(self.facts["best"]["metrics"])

    @property
    def interval(self) -> ScoreInterval | None:
        """The score of the task's criterion on the development rows with its 95% interval.

        None for a run of several tasks, if the score is not a number, and if all bootstrap samples are equal.
        """
        fields = self.facts.get("interval")
        return ScoreInterval(**fields) if fields else None

    @property
    def tasks(self) -> dict[str, FinetuneRun]:
        """The run of each task by its name. With several tasks each has its own folder."""
        if len(self.development) == 1:
            return dict.fromkeys(self.development, self)
        return {name: FinetuneRun(self.folder / name, {name: rows}) for name, rows in self.development.items()}

    @cached_property
    def errors(self) -> list[Mistake]:
        """The wrong predictions for the development rows, the largest error first, ties in the rows' order.

        The kept model computes them on first use. Raises UserError for a run of several tasks.
        """
        if len(self.development) != 1:
            names = ", ".join(self.development)
            raise UserError(
                f"{self.folder} has several tasks ({names}). Use run.tasks[name].errors.",
                code="invalid-value",
            )
        [records] = self.development.values()
        task = self.model.fine_tuned
        mistakes = [
            Mistake(
                texts=record.texts,
                label=record.expected,
                prediction=prediction,
                error=error,
                path=record.path,
                line=record.line,
                unit=record.unit,
            )
            for record, prediction in zip(records, self.model.predict_records(records))
            if (error := task.outcome(prediction, record).error) > 0
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.error)

    @overload
    def predict(self, texts: Iterator[str | tuple[str, ...]]) -> Iterator[Prediction]: ...

    @overload
    def predict(self, texts: Sequence[str | tuple[str, ...]]) -> list[Prediction]: ...

    def predict(self, texts: Any) -> Any:
        """Return the prediction for each text, or for each pair of texts; an iterator gives an iterator."""
        return self.model.predict(texts)


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


def all_rows(task: Task, splits: Splits) -> list[Record]:
    """Return the rows for the folds: the usable rows of the training file, in their order.

    Raises UserError if the task does not support folds.
    """
    if task.dev or task.form == "vectors":
        what = "--dev" if task.dev else f"the task {task.name}, whose rows have no labels"
        raise UserError(f"--folds does not go with {what}.", code="options-exclude-each-other")
    rows = [record for record in splits["train"] if not task.lacks(record)]
    # The development rows were split off the same file: put them back, in the order of the file.
    if task.source.is_held_out("dev"):
        rows = sorted([*rows, *splits["dev"]], key=lambda record: record.line)
    return rows


def finetune_plan(
    plan: FinetunePlan,
    records: Sequence[Splits],
    out: Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
) -> FinetuneRun:
    """Fine-tune to the end on the records of each task, once or for each run of a comparison."""
    given, development = plan, [splits["dev"] for splits in records]
    if plan.comparison.folds:  # of the runs on the folds too, few rows choose no epoch
        rows = all_rows(plan.task, records[0])
        development.append(rows[: len(rows) // plan.comparison.folds])
    plan = fill_open(plan, [splits["train"] for splits in records], development, out, watch)
    if plan.comparison.wanted:
        find_study("folds" if plan.comparison.folds else "comparison")(plan, records, out, watch, wish)
    else:
        model = steps.start(plan)
        steps.introduce(plan, model, watch)
        steps.train(plan, steps.lay_out(plan, records, model, watch), model, out, watch, wish)
        if plan.learning_curve:
            find_study("learning_curve")(given, records, out, watch, wish)
    steps.conclude(plan, out, watch)
    return FinetuneRun(folder=out, development={task.name: splits["dev"] for task, splits in zip(plan.tasks, records)})
