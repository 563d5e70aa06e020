"""The teacher of a distillation: a fine-tuned run, and its task without values tuned on development rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from osbert import recipe
from osbert.data.pack import Packer
from osbert.data.ragged import begins
from osbert.errors import UserError
from osbert.evaluation.forward import outputs
from osbert.evaluation.score import score
from osbert.interop.folder import Folder, open_folder
from osbert.interop.opening import Opening
from osbert.models.contract import Learner
from osbert.tasks import Record, Task
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.processor import choose
from osbert.training.run_folder import RunFolder

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
                f"{path} reads the two texts of a pair apart: its head gives vectors, whose size is the encoder's, and "
                "not scores that a student could learn. Fine-tune the teacher with --few-shot none.",
                code="unsupported-model",
            )
        if head.frozen is not None:
            raise UserError(
                f"{path} stands on an encoder that did not learn (--features): only an encoder that was fine-tuned can "
                "teach. Fine-tune without --features first.",
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
            f"{folder} is {has}: the teacher is a fine-tuned run. osbert finetune TASK --model ENCODER makes one.",
            code="not-a-model",
        )
    if task.form not in ("tokens", "span") and (task.form, task.values) not in TAUGHT:
        raise UserError(
            f"{folder} was fine-tuned for {task.name}, which cannot be distilled: classify, multilabel, regress, tag "
            "and span can. Fine-tune the smaller encoder by itself: osbert finetune.",
            code="unsupported-model",
        )
    settings = RunFolder(folder.path).facts.get("settings", {}).get(task.name)
    return task if settings is None else recipe.build(type(task), settings, where=str(folder))
