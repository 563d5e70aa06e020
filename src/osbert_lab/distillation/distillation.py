"""Distillation as a function: from a fine-tuned run and data to a smaller model of the same task.

It is a fine-tuning whose rows also have the teacher's outputs as targets (teacher.py); the trainer is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from osbert import recipe
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.lock import claim
from osbert.models.contract import Backbone
from osbert.reading.memory import Data, tables
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.events import scores_line
from osbert.runs.finetune import finetune as steps
from osbert.runs.finetune.defaults import fill_open
from osbert.runs.finetune.finetune import FinetuneRun
from osbert.runs.finetune.model import StartingModel, read_model
from osbert.runs.finetune.plan import LENGTH, FinetunePlan, name_of, with_development
from osbert.runs.finetune.records import SPLITS, deduplicate, report_data
from osbert.runs.finetune.rows import FinetuneRows
from osbert.runs.finetune.settings import Comparison
from osbert.tasks import Record, Task, load
from osbert.terminal import format_count, one_line
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder
from osbert_lab.distillation.layers import fewer_layers, select_layers
from osbert_lab.distillation.settings import DistilSettings, LessonSettings
from osbert_lab.distillation.static import StaticStudent, distil_static
from osbert_lab.distillation.teacher import Lessons, TaughtRows, TeacherRun
from osbert_lab.distillation.unlabelled import read_unlabelled


@dataclass(frozen=True)
class DistilRequest:
    """The arguments of a distillation; nothing is opened yet.

    `to`: "run" for a run of the teacher's task, "static" for static vectors. `data`: labelled rows, or pairs on which
    static vectors are scored. `texts`: rows without labels. `student`: an encoder to train instead of layers of the
    teacher. `settings`: fields of DistilSettings, by name.
    """

    teacher: Path
    data: Data
    out: Path
    _: KW_ONLY
    texts: Data = None
    student: Path | None = None
    to: Literal["run", "static"] = "run"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DistilRun(FinetuneRun):
    """A finished distillation. `teacher`: the teacher's scores on the same development rows."""

    reported: ClassVar[tuple[str, ...]] = ("folder", "metrics", "teacher")

    teacher: Mapping[str, float] = field(default_factory=dict)


def distil_to(
    request: DistilRequest, *, watch: Watch = ignore, wish: Interruption | None = None
) -> DistilRun | StaticStudent:
    """Write the student that the request asks for: a run, see `distil`, or static vectors, see `distil_static`."""
    if request.to == "run" and request.data is not None:
        return distil(request, watch=watch, wish=wish)
    if request.to == "run":
        raise UserError("A run is distilled on labelled rows: give --data FILE.", code="missing-value")
    settings = recipe.settings(DistilSettings, request.settings)
    settings.check_static(student=request.student is not None)
    return distil_static(
        request.teacher,
        request.out,
        data=request.data,
        texts=request.texts,
        settings=settings.static,
        opening=settings.opening,
        watch=watch,
    )


def distil(request: DistilRequest, *, watch: Watch = ignore, wish: Interruption | None = None) -> DistilRun:
    """Train a smaller encoder on a fine-tuned run's outputs, into the run folder `request.out`; return the run.

    The same request resumes a stopped run and gives the same weights. Events, signals and exceptions are those of
    `finetune`.
    """
    with claim(request.out) as out:
        RunFolder(out).refuse_foreign()
        given, data = with_development(request.settings, request.data)
        settings = recipe.settings(DistilSettings, given)
        names = recipe.resolve_names(given, schema=DistilSettings)
        settings.check(student=request.student is not None)
        teacher = TeacherRun.open(request.teacher, settings.opening, device=settings.training.device)
        lessons = settings.distil
        if request.student is None and not lessons.layers:
            lessons = dataclasses.replace(lessons, layers=max(1, teacher.layers // 2))
        task = _switch_data(teacher.task, data, settings)
        records = _records(task, request.texts, settings, watch)
        plan = _plan(request, task, settings, names)
        plan = fill_open(plan, [_countable(task, records)], [records["dev"]], out, watch)
        model, what = read_student(plan, teacher, lessons)
        check_student(model, teacher, lessons)
        table = recipe.as_table(lessons) | {"teacher": str(teacher.path), "weights": teacher.weights}
        plan = dataclasses.replace(plan, further={"distil": table})
        scores = teacher.score(task, records["dev"])
        watch(Notice(f"teacher: {teacher.path}; dev {scores_line(scores)}"))
        watch(Notice(f"student: {what}; {_size(model.backbone)} weights of {_size(teacher.learner.backbone)}"))
        for remark in model.remarks:
            watch(Notice(f"  {one_line(remark)}"))
        rows = _rows(task, records, model, Lessons(teacher=teacher, settings=lessons, same_head=lessons.layers > 0))
        steps.train(plan, FinetuneRows.of([rows]), model, out, watch, wish)
        steps.conclude(plan, out, watch)
        run = DistilRun(folder=out, development={task.name: records["dev"]}, teacher=scores)
        score_text = (
            f"dev {task.criterion} {run.metrics[task.criterion]:.4f}, the teacher's {scores[task.criterion]:.4f}"
        )
        watch(Notice(score_text))
        is_smaller = _count_weights(model.backbone) < _count_weights(teacher.learner.backbone)
        if not is_smaller and not run.metrics[task.criterion] > scores[task.criterion]:
            advice = f"The student is as large as its teacher, and not ahead of it: go on using {teacher.path}."
            watch(Notice(advice, warning=True))
        return run


def _switch_data(task: Task, data: Data, settings: DistilSettings) -> Task:
    """Return the teacher's task for other data, with its columns by name. Raises UserError if they are missing."""
    path_or_tables = Path(data) if isinstance(data, str | Path) else tables(data)
    moved = task.source.switch_data(path_or_tables, settings.file.as_settings(task))
    # The task of the teacher, on other files and lengths; its labels and columns stay.
    overrides = {name: value for name in ("dev", "length") if (value := getattr(settings.distil, name))}
    return moved.source.attach_to(dataclasses.replace(moved, **overrides)).source.resolve()


def _records(task: Task, texts: Data, settings: DistilSettings, watch: Watch) -> dict[str, list[Record]]:
    """Return the labelled records ("train", "dev") and those without labels ("texts"), and report descriptions.

    Raises UserError that lists everything wrong with the labelled records, including labels that the teacher does not
    know, or with the others.
    """
    _, records = load(task, SPLITS, fit=False)
    if settings.training.deduplicate:
        records = deduplicate(records)
    for text in report_data(task, records, watch):
        watch(Notice(text, warning=True))
    return records | {"texts": [] if texts is None else read_unlabelled(task, texts, watch)}


def _countable(task: Task, records: Mapping[str, Sequence[Record]]) -> list[Record]:
    """Return the records that make an epoch's steps: unlabelled ones get a label, so that they are counted."""
    # Any label will do: it is never learnt, and makes the record count as one that teaches.
    label = next((record.label for record in records["train"] if not task.lacks(record)), None)
    return [*records["train"], *(dataclasses.replace(record, label=label) for record in records["texts"])]


def _plan(request: DistilRequest, task: Task, settings: DistilSettings, names: Collection[str]) -> FinetunePlan:
    """Return the plan of the student's training; `names`: the settings that the user gave."""
    open_ = {*LENGTH} if settings.scores.patience else {*LENGTH, "scores.keep"}
    return FinetunePlan(
        tasks=(task,),
        paths=(name_of(task),),
        model=request.student or request.teacher,
        from_scratch=False,
        training=dataclasses.replace(settings.training, few_shot="none"),
        optimizer=settings.optimizer,
        scores=settings.scores,
        comparison=Comparison(),
        open=frozenset() if settings.defaults.settings == "paper" else frozenset(open_) - {*names},
        given=frozenset() if settings.defaults.settings == "paper" else frozenset(LENGTH) & {*names},
        opening=settings.opening,
    )


def _rows(task: Task, records: Mapping[str, Sequence[Record]], model: StartingModel, lessons: Lessons) -> TaughtRows:
    """Return the encoded rows; no longer than the teacher reads if targets belong to tokens."""
    longest = [task.length, model.backbone.architecture.length]
    if lessons.settings.states or task.per_token:
        longest.append(lessons.teacher.learner.backbone.architecture.length)
    return TaughtRows.of_lessons(task, records, Packer(tokenizer=model.tokenizer, length=min(longest)), lessons)


def _size(backbone: Backbone) -> str:
    return f"{_count_weights(backbone) / 1e6:,.1f} million"


def _count_weights(backbone: Backbone) -> int:
    return sum(weight.numel() for weight in backbone.parameters())


def read_student(plan: FinetunePlan, teacher: TeacherRun, settings: LessonSettings) -> tuple[StartingModel, str]:
    """Return the student that a plan starts from, and a description of it.

    It has `settings.layers` layers of the teacher, or if that is 0 it is the encoder in the plan's `model`. Raises
    UserError if the teacher lacks such layers, or the student has more layers than the teacher.
    """
    model = read_model(plan.model, plan.training, opening=plan.opening)
    layers = model.backbone.architecture.layers
    if not settings.layers:
        if layers > teacher.layers:
            raise UserError(
                f"{plan.model} has {layers} layers, more than the {teacher.layers} of the teacher {teacher.path}. "
                "Choose a smaller --student.",
                code="invalid-value",
            )
        return model, f"{plan.model}, {format_count(layers, 'layer')} of {model.backbone.architecture.width}"
    try:
        backbone = fewer_layers(model.backbone, settings.layers)
    except ValueError as error:
        raise UserError(
            f"{plan.model}: {error}. Choose other --layers, or another encoder as --student.", code="invalid-value"
        ) from error
    chosen = ", ".join(str(layer + 1) for layer in select_layers(model.backbone, settings.layers))
    return dataclasses.replace(model, backbone=backbone), f"layers {chosen} of the teacher's {layers}"


def check_student(student: StartingModel, teacher: TeacherRun, settings: LessonSettings) -> None:
    """Raise UserError if student and teacher have different tokenizers and the loss compares their tokens."""
    if student.tokenizer.fingerprint == teacher.tokenizer.fingerprint:
        return
    problems = Problems(heading=f"{student.source} and the teacher {teacher.path} have different vocabularies")
    if teacher.task.per_token:
        problems.add(
            f"{teacher.task.name} is distilled token by token. Choose a --student with the teacher's vocabulary, "
            "or use --layers.",
            code="mismatched-tokenizer",
        )
    if settings.states:
        problems.add("--states compares the states of tokens. Remove it.", code="options-exclude-each-other")
    problems.stop_if_any()
