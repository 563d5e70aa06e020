"""Fine-tuning as a function: trains an encoder on a task, or on several tasks together, in a run folder.

`finetune` reads the data and runs a plan. The steps of one run follow in their order, and at the end what is returned.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, overload

import torch

from osbert import __version__, components, recipe
from osbert.data.pack import Packer
from osbert.data.record_loader import EXPONENT
from osbert.errors import UserError
from osbert.evaluation.bootstrap import ROUGH_BELOW, ScoreInterval
from osbert.evaluation.score import class_scores, classes_left_out
from osbert.extensions import extensions, require_extension
from osbert.files import disk_needed, user_path, write_text
from osbert.guarded import read_object
from osbert.interop.hub import hub_facts, locate
from osbert.interop.huggingface.folders import osbert_only_reason
from osbert.interop.tuned_files import BASE, TUNED
from osbert.lock import claim, hold_lock
from osbert.remote import FolderForm, local_data, output_folder, reading_copies
from osbert.runs.contract import Notice, Run, Watch, ignore
from osbert.runs.events import Epoch, Measurement, TrainingStart, format_epoch, scores_line
from osbert.runs.finetune.defaults import advise_on_collapse, fill_open, learn_from_all
from osbert.runs.finetune.few_shot import cross_validate, sentence_model
from osbert.runs.finetune.model import StartingModel, describe_tuning, read_model
from osbert.runs.finetune.plan import LENGTH, FinetunePlan, find_study, flag
from osbert.runs.finetune.records import REMARKS, Splits, read_tasks, report_tasks
from osbert.runs.finetune.report import finetuning_report
from osbert.runs.finetune.rows import FinetuneRows, TaskRows
from osbert.runs.finetune.training_loop import FinetuneTrainer, tidy
from osbert.runs.seen_texts import sketch
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.calibration import Calibration
from osbert.terminal import format_count, one_line
from osbert.training.checkpoint import CHECKPOINTS
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.progress import Progress
from osbert.training.run_folder import FACTS, RECIPE, RunFolder
from osbert.training.tracking import Metrics, TrackerQueue

FORM = FolderForm(marker=FACTS, scratch=(CHECKPOINTS,))
"""A run folder on an object store."""


def finetune(
    task: str | Task | Sequence[str | Task],
    /,
    *,
    model: str | os.PathLike[str],
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
    inputs = [user_path(path) for path in (model, data) if isinstance(path, str | os.PathLike)]
    with (
        torch.inference_mode(False),  # also if the caller is in that mode, which records no gradients
        output_folder(out, FORM, inputs=inputs) as output,
        claim(output.path) as folder,
        reading_copies(),
    ):
        RunFolder(folder).refuse_foreign()
        model_path = locate(model, watch=watch).path
        plan, records = read_tasks(tasks, settings, model=model_path, data=local_data(data), watch=watch)
        records = learn_from_all(plan, records, folder)
        report_tasks(plan.tasks, records, watch)
        run = finetune_plan(plan, records, folder, watch, wish)
    return run if output.path == Path(out) else replace(run, folder=Path(out))


def finetune_plan(
    plan: FinetunePlan, records: Sequence[Splits], out: Path, watch: Watch = ignore, wish: Interruption | None = None
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
        model = start(plan)
        introduce(plan, model, watch)
        train(plan, lay_out(plan, records, model, watch), model, out, watch, wish)
        if plan.learning_curve:
            find_study("learning_curve")(given, records, out, watch, wish)
    conclude(plan, out, watch)
    scored = {task.name: splits["dev"] or splits["train"] for task, splits in zip(plan.tasks, records)}
    return FinetuneRun(folder=out, development=scored)


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


def start(plan: FinetunePlan) -> StartingModel:
    """Return the encoder that a run starts from."""
    writes = any(task.form == "text" for task in plan.tasks)
    model = read_model(plan.model, plan.training, from_scratch=plan.from_scratch, writes=writes, opening=plan.opening)
    return sentence_model(model) if plan.pools else model


def introduce(plan: FinetunePlan, model: StartingModel, watch: Watch) -> None:
    """Report the model that is fine-tuned, and remarks on its files."""
    sizes = model.backbone.architecture
    begin = "its sizes with fresh weights" if plan.from_scratch else "pretrained weights"
    recurrent = getattr(sizes, "recurrent", 0)
    above = f" and {recurrent} recurrent" if recurrent else ""
    watch(Notice(f"model: {plan.model}, {sizes.layers} layers{above} of {sizes.width}, {begin}"))
    if closed := osbert_only_reason(sizes):
        watch(Notice(f"  {closed}"))
    for remark in model.remarks:
        watch(Notice(f"  {one_line(remark)}"))
    path = plan.model / RECIPE  # there is one if this is a second stage
    if before := path.is_file() and recipe.read(path).get("task"):
        reused = any(model.trained_task(task) for task in plan.tasks)
        layer = "and so is its layer for this task" if reused else "with a new layer for this task"
        watch(Notice(f"  it was fine-tuned for {before}: its encoder is trained further, {layer}"))


def lay_out(plan: FinetunePlan, records: Sequence[Splits], model: StartingModel, watch: Watch = ignore) -> FinetuneRows:
    """Return the encoded rows of each task; report if the model reads fewer tokens than a task's length.

    Raises UserError if one of several tasks would never be sampled.
    """
    source, sizes, wanted = model.source, model.backbone.architecture, plan.training
    laid_out = []
    for task, splits in zip(plan.tasks, records, strict=True):
        if trained := model.trained_task(task):
            task = replace(task, **{name: getattr(trained, name) for name in task.head_settings})
        task = task.for_model(sizes, model.tokenizer, writes=source.writes, read_sentences=lambda: source.sentences)
        if task.form == "vectors":
            for line in _vector_notices(task, model):
                watch(Notice(line))
        length = min(task.length, sizes.length)
        if length < task.length:
            watch(Notice(f"length: {length:,} tokens, the most that the model reads, instead of {task.length:,}"))
        losses = {"auxiliary": wanted.auxiliary > 0, "whole": wanted.contrastive}
        rows_of_task = TaskRows.of(task, splits, Packer(tokenizer=model.tokenizer, length=length), **losses)
        laid_out.append(rows_of_task if splits["dev"] else cross_validate(rows_of_task, model))
    rows = FinetuneRows.of(laid_out)
    if draws := rows.draws(epochs=wanted.epochs, batch=wanted.batch, seed=wanted.seed):
        watch(Notice(f"tasks are sampled by their sizes to the power of {EXPONENT}: {draws}"))
    return rows


def _vector_notices(task: Task, model: StartingModel) -> Iterator[str]:
    """Yield lines on the prompts that a task on vectors reads texts with, and on what of a model is not trained."""
    if any(task.prompts.values()):
        roles = (f"{role or 'default'} {prompt[:60]!r}" for role, prompt in task.prompts.items())
        yield f"prompts: {', '.join(roles)}"
    if (sentences := model.source.sentences) and sentences.parts and not task.per_token:
        kinds = ", ".join(part.kind for part in sentences.parts)
        yield f"{model.source}: its parts after the pooling ({kinds}) are left out: the encoder alone is trained"
    if sentences and not sentences.prompts.pooled and any(task.prompts.values()):
        yield f"{model.source} does not pool the tokens of prompts; the trained model does (include_prompt is true)"


def train(
    plan: FinetunePlan,
    rows: FinetuneRows,
    model: StartingModel,
    out: Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
) -> Epoch:
    """Fine-tune to the end, write the run folder, and return the epoch whose weights are kept.

    Raises StopRequest after a checkpoint if `wish` catches a signal. KeyboardInterrupt is raised again after a
    checkpoint of the last whole step, if there is one.
    """
    if any(task.doubts_labels for task in plan.tasks):
        leave_out = require_extension("osbert.runs.finetune.rows", "doubted", "--robust")
        remaining_rows = [leave_out(task_rows, model, watch) for task_rows in rows.tasks]
        rows = replace(FinetuneRows.of(remaining_rows), vector_folder=rows.vector_folder)
    # Made before anything is written: what cannot be leaves no folder behind.
    run = FinetuneTrainer(
        model=model, rows=rows, settings=plan.training, optimizer=plan.optimizer, folder=out, scores=plan.scores
    )
    with disk_needed(out), hold_lock(out):
        folder = begin_folder(plan, rows, out)
        write_remarks(rows.remarks, out)
        if not folder.finished:
            try:
                before = resume(run, watch)
                follow(run, watch, wish)
                finish(run, plan, folder, before, watch)
            except UserError:
                if run.trainer.hopeless:
                    folder.fail(run.trainer.step)
                raise
        tidy(out)
        return Epoch(**folder.facts["finished"]["best"])


def begin_folder(plan: FinetunePlan, rows: FinetuneRows, out: Path) -> RunFolder:
    """Return the folder of a run, started now or before. Raises UserError if it holds another run."""
    facts = {
        "osbert": __version__,
        "command": "finetune",
        "rows": rows.fingerprint,
        "tokenizer": rows.tokenizer.fingerprint,
        **hub_facts(plan.model),
    }
    folder = RunFolder(out)
    folder.begin(plan.table(), facts, inputs=("command", "rows", "tokenizer"), defaults=plan.defaults())
    return folder


def write_remarks(remarks: Sequence[str], out: Path) -> None:
    """Write the remarks on corrected and faulty records into the run folder, one line each."""
    if remarks:
        write_text(out / REMARKS, "\n".join(remarks) + "\n")


def resume(run: FinetuneTrainer, watch: Watch) -> dict[str, float]:
    """Go to the last checkpoint, if there is one; return the scores before training, {} if there are none."""
    vectors = run.rows.vector_folder or run.folder
    prepared = (rows.prepare(run.learner, vectors) for rows in run.rows.tasks)
    for text in (describe_tuning(run.learner.backbone), run.rows.truncation, *prepared):
        if text:
            watch(Notice(text))
    for rows in run.rows.tasks:
        if rows.unknown:
            watch(Notice(rows.unknown, warning=True))
    if run.trainer.resume():
        watch(Notice(f"going on from step {run.trainer.step:,} of {run.trainer.settings.steps:,}"))
    if before := run.before():
        watch(Notice(f"before training  dev {scores_line(before)}"))
    return before


def follow(run: FinetuneTrainer, watch: Watch, wish: Interruption | None) -> None:
    """Train, and report each step and epoch. Raises StopRequest after a checkpoint if `wish` catches a signal."""
    trainer = run.trainer
    queue = TrackerQueue(run.folder, run.settings.track, trainer.notices) if run.settings.track else None
    metrics = Metrics(run.folder, every=run.settings.log_every, memory=trainer.memory, queue=queue)
    for extension in extensions("osbert.runs.finetune.watches").values():
        watch = extension.load()(run, watch)
    watch(TrainingStart(processor=str(trainer.processor), done=trainer.step, steps=run.steps))
    noted = trainer.step  # all that the run is resumed from is noted up to this step
    with contextlib.closing(metrics), wish or contextlib.nullcontext():
        metrics.go_back(trainer.step)
        try:
            for event in run.run():
                means: list[Measurement] = []
                if isinstance(event, Epoch):
                    scores = {f"dev.{name}": value for name, value in event.metrics.items()}
                    metrics.write({"step": event.step, "epoch": event.epoch, "train.loss": event.loss} | scores)
                elif line := metrics.step(event):
                    means.append(Measurement(of="training", values=line))
                # An epoch that has ended is scored first: without its scores the run would go on behind it.
                between = not isinstance(event, Progress) or not run.is_scored(event)
                noted = trainer.step if between else noted
                for message in (event, *means, *trainer.notices):
                    watch(Notice(message, warning=True) if isinstance(message, str) else message)
                trainer.notices.clear()
                # After the last step too: later code does not check for the signal.
                if wish and wish.signal and between:
                    if trainer.step:  # else it begins anew, as metrics.jsonl does
                        trainer.save()
                    watch(Notice(f"stopped after step {trainer.step:,}; the same command goes on from there"))
                    raise StopRequest
            if run.ended_early and not trainer.finished:
                watch(Notice(f"ended after step {trainer.step:,}: {run.scores.patience} scores without a higher one"))
        except KeyboardInterrupt:
            if trainer.whole and trainer.step == noted > 0 and not (wish and wish.signal):
                trainer.save()
            raise


def finish(
    run: FinetuneTrainer, plan: FinetunePlan, folder: RunFolder, before: Mapping[str, float], watch: Watch
) -> None:
    """Write the model and the report of a run that was trained to the end, and record last that it is finished."""
    # A folder is begun before anything is written into it: else it would be taken for somebody else's.
    folders = {
        outcome.folder: begin_folder(plan.of(outcome.task), run.rows, run.folder / outcome.folder)
        for outcome in run.outcomes
        if outcome.folder
    }
    run.finish()
    ended: dict[str, Any] = {"best": asdict(run.best), "processor": str(run.trainer.processor)}
    ended |= {"before": before} if before else {}
    if rivals := run.rivals:
        ended["compared"] = {name: asdict(epoch) for name, epoch in rivals.items()}
    ended |= {"cross_validated": True} if run.rows.tasks[0].cross_validation else {}
    finetuning_report(run, name=plan.name)
    if run.map and (remark := run.map.write(run.epochs)):
        watch(Notice(remark))
    for outcome, rows, intervals in zip(run.outcomes, run.rows.tasks, run.intervals, strict=True):
        facts = {**ended, "training_texts": sketch(rows.training), "best": outcome.scores(ended["best"])}
        facts["development_rows"] = outcome.rows
        if outcome.calibration:
            facts["calibration"] = outcome.calibration.as_dict()
        if interval := intervals.get(outcome.task.criterion):
            facts["interval"] = asdict(interval)
        task_folder = folders.get(outcome.folder, folder)
        task_folder.write_recipe(plan.of(outcome.task).table())  # with the tuned values
        task_folder.finish(facts)
    if folders:
        folder.finish(ended)


def conclude(plan: FinetunePlan, out: Path, watch: Watch) -> None:
    """Report the kept epoch of a finished run, and the results of each task."""
    if len(plan.tasks) == 1:
        _conclude_task(plan, plan.task, out, watch)
        return
    watch(Notice(f"{plan.scores.keep}: {format_epoch(Epoch(**RunFolder(out).facts['finished']['best']))}"))
    for task in plan.tasks:
        watch(Notice(f"\n{task.name}:"))
        _conclude_task(plan, task, out / task.name, watch)


def _conclude_task(plan: FinetunePlan, task: Task, out: Path, watch: Watch) -> None:
    """Report the kept epoch, the scores of each class, and how to use the run."""
    ended = RunFolder(out).facts["finished"]
    best = Epoch(**ended["best"])
    if before := ended.get("before"):
        watch(Notice(f"before training: dev {scores_line(before)}"))
    crossed = "cross_validated" in ended
    epoch_text = format_epoch(replace(best, metrics={}) if crossed else best)
    watch(Notice(f"{plan.scores.keep}: {epoch_text}; its weights are in {out}"))
    if crossed:
        score = scores_line(best.metrics) or "no score, which takes two rows or more of two labels or more"
        remark = "" if plan.training.few_shot == "linear" else " (the tuned model has learnt from all rows)"
        watch(Notice(f"linear layer on the untuned encoder, cross-validated{remark}: {score}"))
    for name, epoch in ended.get("compared", {}).items():
        watch(Notice(f"{name}: {format_epoch(Epoch(**epoch))}"))
    if "interval" in ended:
        interval = ScoreInterval(**ended["interval"])
        chosen = "; the epoch was chosen on them, too" if interval.few and plan.scores.chooses(plan.training) else ""
        rows = "cross-validated" if crossed else "dev"
        watch(Notice(f"{rows} {interval.describe()}{chosen}", warning=interval.few))
    elif (rows := ended.get("development_rows", ROUGH_BELOW)) < ROUGH_BELOW and task.criterion in best.metrics:
        score = f"{task.criterion} {best.metrics[task.criterion]:.4f} over {format_count(rows, 'row')}"
        watch(Notice(f"dev {score}: under {ROUGH_BELOW} rows, a rough figure", warning=True))
    if best.collapsed:
        settings = recipe.read(out / RECIPE)
        steps = round(best.step / best.epoch * settings["training"]["epochs"]) if best.epoch else 0
        answer = one_line(best.collapsed)
        flags = [flag(name) for name in LENGTH if name in plan.given]
        advice = advise_on_collapse(settings, steps=steps, flags=flags)
        message = f"The model has collapsed: it predicts {answer} for every development row. {advice}"
        watch(Notice(message, warning=True))
    if best.metrics and (classes := class_scores(task, best.metrics)):
        left_out = classes_left_out(task, best.metrics)
        of = f"{left_out} (all are in {out / FACTS})" if left_out else "each class"
        watch(Notice(f"F1 of {of}: " + ", ".join(f"{one_line(name)} {score}" for name, score in classes.items())))
    if calibration := ended.get("calibration"):
        watch(Notice(Calibration(**calibration).describe()))
    if (out / TUNED).is_file():
        size, base = (out / TUNED).stat().st_size / 1e6, read_object(out / BASE)["path"]
        only = f"{out} has only the tuned weights ({size:.1f} MB) and needs {base}; --merge writes a complete model"
        watch(Notice(only))
    trust = " --trust" if components.is_dotted(plan.of(task).name) else ""
    watch(Notice(f"try: osbert predict {out} {task.sample}{trust}"))


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

    def __repr__(self) -> str:
        """Return the folder and the scores, for notebooks; the folder alone once it is gone."""
        with contextlib.suppress(UserError, OSError, KeyError):
            return f"{type(self).__name__}({str(self.folder)!r}: {scores_line(self.metrics)})"
        return f"{type(self).__name__}({str(self.folder)!r})"

    @property
    def metrics(self) -> dict[str, float]:
        """The scores of the kept epoch on the development rows; its weights are the model's.

        If few rows were all learnt from, those of a linear layer by cross-validation; {} if labels have one row each.
        """
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
                f"{self.folder} has several tasks ({names}). Use run.tasks[name].errors.", code="invalid-value"
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
