"""The teacher of a distillation, and rows with its outputs as targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from osbert import recipe
from osbert.data.example import begins
from osbert.data.examples import Examples, Targets
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.forward import outputs
from osbert.evaluation.score import score
from osbert.interop.folder import Folder, open_folder
from osbert.interop.opening import Opening
from osbert.models.contract import Backbone, Head, Learner
from osbert.runs.finetune.rows import TaskRows
from osbert.tasks import Record, Task
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.checkpoint import CHECKPOINTS
from osbert.training.processor import choose
from osbert.training.run_folder import RunFolder
from osbert_lab.distillation.heads import SoftTargetHead, StateHead, Teacher
from osbert_lab.distillation.settings import LessonSettings

TAUGHT = {("sequence", "classes"), ("sequence", "labels"), ("sequence", "numbers")}
"""Supported forms and values of a teacher's outputs, besides the forms `tokens` and `span`."""


@dataclass(frozen=True, kw_only=True)
class TeacherRun:
    """A fine-tuned run as a teacher. `task`: not tuned on development rows; `weights`: a hash of the weights."""

    path: Path
    task: Task
    learner: Learner
    tokenizer: AnyTokenizer
    weights: str

    @classmethod
    def open(cls, path: Path, opening: Opening, *, device: str) -> Self:
        """Open the run in a folder. Raises UserError if it cannot teach, and as `Folder` does."""
        folder = open_folder(path, opening)
        task = _read_untuned_task(folder)
        weights = folder.fingerprint
        learner = Learner(folder.backbone, folder.heads)
        head = learner.heads[task.name]
        if head.form == "vectors":
            raise UserError(
                f"{path} encodes the two texts of a pair separately: its outputs are vectors, not scores that a "
                "student could learn. Fine-tune the teacher with --few-shot none.",
                code="unsupported-model",
            )
        if head.frozen is not None:
            raise UserError(
                f"{path} uses a frozen encoder (--features), which cannot be a teacher. Fine-tune without "
                "--features first.",
                code="unsupported-model",
            )
        tokenizer = folder.tokenizer
        folder.release()
        return cls(
            path=path, task=task, learner=learner.eval().to(choose(device).device), tokenizer=tokenizer, weights=weights
        )

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return self.learner.backbone.architecture.layers

    @property
    def packer(self) -> Packer:
        """The packer that encodes its texts."""
        longest = self.learner.backbone.architecture.length
        return Packer(tokenizer=self.tokenizer, length=min(self.task.length, longest))

    def score(self, task: Task, records: Sequence[Record]) -> dict[str, float]:
        """Return its scores on labelled records of `task`, which is its own task on other data."""
        return score(self.learner, task, records, self.packer).metrics

    def outputs(self, task: Task, records: Sequence[Record]) -> NDArray[np.float32]:
        """Return its outputs (n, K) for n records; several sequences of a record, such as windows, are averaged."""
        packer = self.packer
        groups = [task.encode(dataclasses.replace(record, label=None), packer) for record in records]
        rows = outputs(self.learner, task.name, [example for group in groups for example in group])
        counts = np.array([len(group) for group in groups], np.int64)
        # The sequences of a record are consecutive rows, which reduceat sums.
        sums = np.add.reduceat(np.stack(rows), begins(counts))
        return (sums / counts[:, None]).astype(np.float32)


def _read_untuned_task(folder: Folder) -> Task:
    """Return the task of a folder without values tuned on the development rows, which run.json does not have.

    Raises UserError if there is no task, or a distillation does not support it.
    """
    task = folder.task
    if task is None or folder.is_exported:
        has = "an export" if folder.is_exported else "an encoder without a task"
        raise UserError(
            f"{folder} is {has}, but the teacher must be a fine-tuned run. Make one with osbert finetune TASK "
            "--model ENCODER.",
            code="not-a-model",
        )
    if task.form not in ("tokens", "span") and (task.form, task.values) not in TAUGHT:
        raise UserError(
            f"{folder} was fine-tuned for {task.name}, which cannot be distilled (only classify, multilabel, "
            "regress, tag and span can). Fine-tune the smaller encoder with osbert finetune instead.",
            code="unsupported-model",
        )
    settings = RunFolder(folder.path).facts.get("settings", {}).get(task.name)
    return task if settings is None else recipe.build(type(task), settings, where=str(folder))


SOFT, STATES = "soft", "states"
"""Names of the losses of a distillation besides the task's own."""
OUTPUTS = Path(CHECKPOINTS) / "teacher.f32"
"""File in the run's folder with the teacher's outputs for the training rows, float32."""
TOGETHER = 1024
"""Rows whose outputs are written at a time; a stopped run resumes after the last complete group."""


@dataclass(kw_only=True, eq=False)
class Lessons:
    """The teacher's targets for the rows of a task. `same_head`: initialise the student's head with the teacher's.

    Outputs for whole sequences are computed once, with the teacher's own tokenizer (`outputs`). Those for tokens, and
    hidden states, are computed in each step.
    """

    teacher: TeacherRun
    settings: LessonSettings
    same_head: bool
    outputs: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def targets(self, examples: Examples) -> Examples:
        """Return the sequences with a target for each loss."""
        targets, count = dict(examples.targets), len(examples)
        if self.settings.soft:
            targets[SOFT] = self._soft(examples)
        if self.settings.states:
            targets[STATES] = Targets(labels=np.zeros(count, np.float32), counts=np.ones(count, np.int64))
        return dataclasses.replace(examples, targets=targets)

    def heads(self, task: Task, backbone: Backbone) -> dict[str, Head]:
        """Return the head of the task and those of the distillation losses, by name."""
        head, teacher_head = task.head(backbone), self.teacher.learner.heads[task.name]
        if self.same_head:
            head.load_state_dict(teacher_head.state_dict())
        heads, settings = {task.name: head}, self.settings
        teacher = Teacher(self.teacher.learner, task.name)
        if settings.soft:
            token_teacher = teacher if task.per_token else None
            heads[SOFT] = SoftTargetHead(
                head, values=task.values, target=SOFT, temperature=settings.temperature, teacher=token_teacher
            )
        if settings.states:
            heads[STATES] = StateHead(backbone, target=STATES, teacher=teacher)
        return heads

    def keep(self, task: Task, records: Sequence[Record], folder: Path) -> str:
        """Compute the outputs for records, or the missing ones, and cache them in `folder`; return a description."""
        if task.per_token or not self.settings.soft:
            return ""
        path = folder / OUTPUTS
        path.parent.mkdir(parents=True, exist_ok=True)
        width = self.teacher.outputs(task, records[:1]).shape[1]
        size = 4 * width * TOGETHER
        with path.open("ab") as file:
            done = file.tell() // size  # what a killed run wrote in part is cut off
            file.truncate(done * size)
            for first in range(done * TOGETHER, len(records), TOGETHER):
                file.write(self.teacher.outputs(task, records[first : first + TOGETHER]).tobytes())
                file.flush()
        self.outputs = np.memmap(path, np.float32, mode="r", shape=(len(records), width))
        return f"the teacher's outputs for {len(records):,} rows are kept in {path}"

    def _soft(self, examples: Examples) -> Targets:
        count, form = len(examples), self.teacher.task.form
        if form == "sequence":
            # The windows of a record share its outputs, with weight 1 / (K x windows) each: every record counts 1.
            outputs = self.outputs[examples.records]  # (B, K)
            _, record_indices, windows = np.unique(examples.records, return_inverse=True, return_counts=True)
            weights = 1 / (outputs.shape[1] * windows[record_indices])
            return Targets(
                labels=outputs.ravel(),
                counts=np.full(count, outputs.shape[1], np.int64),
                weights=np.repeat(weights, outputs.shape[1]).astype(np.float32),
            )
        if form == "span":  # a start and an end a sequence
            return Targets(labels=np.zeros(2 * count, np.float32), counts=np.full(count, 2, np.int64))
        # One target at the first token of each word. Prefix sums of the mask give the number of them in each sequence.
        index = np.flatnonzero(examples.words).astype(np.int64)
        sums = np.append(0, np.cumsum(examples.words))
        counts = sums[examples.starts + examples.lengths] - sums[examples.starts]
        return Targets(labels=np.zeros(len(index), np.float32), counts=counts, index=index)


@dataclass(frozen=True, kw_only=True, eq=False)
class TaughtRows(TaskRows):
    """The rows of a task followed by unlabelled ones (`training` has both), with the teacher's targets."""

    lessons: Lessons

    @classmethod
    def of_lessons(cls, task: Task, records: Mapping[str, Sequence[Record]], packer: Packer, lessons: Lessons) -> Self:
        """Encode the training records, unless the task is `lazy`: "train", and "texts" without labels; and "dev".

        Raises UserError that lists every record that is too long, if the task does not allow truncation.
        """
        chosen = [*(record for record in records["train"] if not task.lacks(record)), *records["texts"]]
        training = [dataclasses.replace(record, number=number) for number, record in enumerate(chosen)]
        return cls.of(task, records, packer, training=training, lessons=lessons)

    @property
    def add_targets(self) -> Callable[[Examples], Examples]:
        """What gives training sequences the teacher's targets."""
        return self.lessons.targets

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the losses by the names of their heads."""
        settings = self.lessons.settings
        return {self.task.name: 1 - settings.soft, SOFT: settings.soft, STATES: settings.states}

    def heads(self, backbone: Backbone) -> dict[str, Head]:
        """Return the task's head and those of the distillation losses, by name."""
        return self.lessons.heads(self.task, backbone)

    def prepare(self, learner: Learner, folder: Path) -> str:
        """Cache the teacher's outputs for whole sequences in the folder."""
        return self.lessons.keep(self.task, self.training, folder)
