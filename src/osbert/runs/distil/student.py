"""The student of a distillation: some layers of the teacher, or another encoder, checked against the teacher."""

from __future__ import annotations

import dataclasses

from osbert.errors import Problems, UserError
from osbert.models.adapting.layers import fewer_layers, select_layers
from osbert.runs.distil.settings import LessonSettings
from osbert.runs.distil.teacher import TeacherRun
from osbert.runs.finetune.model import StartingModel, read_model
from osbert.runs.finetune.plan import FinetunePlan
from osbert.terminal import format_count


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
                f"{plan.model} has {layers} layers, the teacher {teacher.path} {teacher.layers}: a student has no more "
                "than its teacher. Name a smaller --student.",
                code="invalid-value",
            )
        return model, f"{plan.model}, {format_count(layers, 'layer')} of {model.backbone.architecture.width}"
    try:
        backbone = fewer_layers(model.backbone, settings.layers)
    except ValueError as error:
        raise UserError(
            f"{plan.model}: {error}. Give other --layers, or another encoder as --student.", code="invalid-value"
        ) from error
    chosen = ", ".join(str(layer + 1) for layer in select_layers(model.backbone, settings.layers))
    return dataclasses.replace(model, backbone=backbone), f"layers {chosen} of the teacher's {layers}"


def check_student(student: StartingModel, teacher: TeacherRun, settings: LessonSettings) -> None:
    """Raise UserError if student and teacher have different tokenizers and the loss compares their tokens."""
    if student.tokenizer.fingerprint == teacher.tokenizer.fingerprint:
        return
    problems = Problems(heading=f"{student.source} has another vocabulary than the teacher {teacher.path}")
    if teacher.task.per_token:
        problems.add(
            f"{teacher.task.name} is taught piece by piece: take a --student with the teacher's, or --layers.",
            code="mismatched-tokenizer",
        )
    if settings.states:
        problems.add("States belong to pieces: leave --states out.", code="options-exclude-each-other")
    problems.stop_if_any()
