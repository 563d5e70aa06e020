"""The rows of a fine-tuning as a tokenizer lays them out: made once, also where several trials learn from them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from osbert import recipe
from osbert.data.encoded import Encoded, OnDemand, Ready
from osbert.data.pack import Packer
from osbert.data.record_loader import RecordLoader
from osbert.data.step import Loader
from osbert.evaluation.score import Score, collapsed, refuse_long, score
from osbert.models.contract import Backbone, Head, Learner
from osbert.runs.finetune.long import long_texts
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.calibration import Calibration
from osbert.text.file_tokenizer import AnyTokenizer


@dataclass(frozen=True, kw_only=True)
class Part:
    """A task of a run with what it has learnt from the development rows; `calibration` of its probabilities, if any.

    `collapsed`: the one answer that it gives all of these rows. `folder`: the part of the run's folder that its model
    goes into, "" for the whole of it.
    """

    task: Task
    calibration: Calibration | None
    collapsed: str = ""
    folder: str = ""

    def scores(self, best: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of the best epoch with this task's own results alone; of several theirs have its name."""
        prefix = f"{self.folder}." if self.folder else ""
        own = {name.removeprefix(prefix): value for name, value in best["metrics"].items() if name.startswith(prefix)}
        return {**best, "metrics": own, "collapsed": self.collapsed}


class Lessons(Protocol):
    """What a fine-tuning asks of its rows, of one task or of several that share the encoder."""

    @property
    def tokenizer(self) -> AnyTokenizer:
        """Return what the texts were encoded with."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return a hash of all texts and labels."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """Return what was mended or is amiss in the data, a line a record."""
        ...

    @property
    def criterion(self) -> str:
        """Return the score by which the best epoch is kept."""
        ...

    @property
    def pairs(self) -> bool:
        """Return whether there are sequences of two texts."""
        ...

    @property
    def truncation(self) -> str:
        """Return in words how much of the texts does not fit, "" when everything does."""
        ...

    @property
    def compared(self) -> bool:
        """Return whether the encoder is scored before training, too."""
        ...

    def heads(self, backbone: Backbone) -> dict[str, Head]:
        """Return fresh heads by the tasks' names."""
        ...

    def loader(self, *, batch: int, micro_tokens: int, seed: int) -> EpochLoader:
        """Return the stream of steps."""
        ...

    def prepare(self, learner: Learner, folder: Path) -> str:
        """Write what is worked out once into a folder, and return in words what was, "" for nothing."""
        ...

    def score(self, learner: Learner) -> Score:
        """Return predictions for the development records, and the scores."""
        ...

    def collapsed(self, predictions: Sequence[Prediction]) -> str:
        """Return the one answer that all development records get, as `evaluation.score.collapsed`."""
        ...

    def learnt(self, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return what tasks learn from the predictions for the development records, as plain values."""
        ...

    def parts(self, learnt: Mapping[str, Any]) -> list[Part]:
        """Return the tasks with what `learnt` gave."""
        ...


class EpochLoader(Loader, Protocol):
    """A stream of steps with epochs."""

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of an epoch."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """What a task is learnt from and scored on.

    `task` is fitted. `training`: the records that have a label; `encoded`: their sequences. `development`: the records
    that every epoch is scored on. `fingerprint`: a hash of all texts and labels. `remarks`: what was mended or is amiss
    in the data, a line a record. `kept`: the folder in which several runs share what is worked out once; None for the
    run's own.
    """

    task: Task
    packer: Packer
    training: Sequence[Record]
    development: Sequence[Record]
    encoded: Encoded
    fingerprint: str
    remarks: Sequence[str]
    kept: Path | None = None

    @classmethod
    def of(cls, task: Task, records: Mapping[str, Sequence[Record]], packer: Packer) -> Self:
        """Encode the training records, unless the task is `lazy`; `records` has "train" and "dev".

        Raises UserError that names every record that is too long, where the task forbids to cut any.
        """
        training = [record for record in records["train"] if task.teaches(record)]
        refuse_long(task, [*training, *records["dev"]], packer)
        groups = (task.encode(record, packer) for record in training)
        return cls(
            task=task,
            packer=packer,
            training=training,
            development=records["dev"],
            encoded=OnDemand(training, lambda record: task.encode(record, packer)) if task.lazy else Ready(groups),
            fingerprint=fingerprint(records),
            remarks=[*_remarks(task, records)],
        )

    @property
    def tokenizer(self) -> AnyTokenizer:
        """Return what the texts were encoded with."""
        return self.packer.tokenizer

    @property
    def criterion(self) -> str:
        """Return the task's metric by which the best epoch is kept."""
        return self.task.criterion

    @property
    def compared(self) -> bool:
        """Return whether the encoder can do the task without being taught."""
        return self.task.compared

    def heads(self, backbone: Backbone) -> dict[str, Head]:
        """Return a fresh head."""
        return {self.task.name: self.task.head(backbone)}

    def loader(self, *, batch: int, micro_tokens: int, seed: int) -> RecordLoader:
        """Return the stream of steps."""
        task = self.task
        return RecordLoader(
            self.encoded,
            batch=task.per_step(batch, self.training),
            micro_tokens=micro_tokens,
            seed=seed,
            together=task.batching != "sequences",
            whole=task.batching == "step",
        )

    def prepare(self, learner: Learner, folder: Path) -> str:
        """Keep the vectors of a frozen encoder in a file of `kept` or the folder, if the task's head stands on one."""
        head = learner.heads[self.task.name]
        assert isinstance(head, Head)
        if head.frozen is None:
            return ""
        held = (replace(record, label=None) for record in self.development)
        encoded = (example for record in held for example in self.task.encode(record, self.packer))
        training = self.encoded.take(np.arange(len(self.encoded)))
        path = head.frozen.keep(self.kept or folder, itertools.chain(training, encoded))
        return f"the encoder does not learn: its vectors are kept in {path} ({path.stat().st_size / 1e6:,.0f} MB)"

    def score(self, learner: Learner) -> Score:
        """Return predictions for the development records, and the task's metrics, at the threshold that suits them."""
        return score(learner, self.task, self.development, self.packer, development=True)

    def collapsed(self, predictions: Sequence[Prediction]) -> str:
        """Return the one answer that all development records get, as `evaluation.score.collapsed`."""
        return collapsed(self.task, predictions, self.development)

    def learnt(self, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return what the task learns from the development records, and how its probabilities are to be mended."""
        calibration = self.task.calibration(predictions, self.development)
        return {
            "tuned": recipe.as_table(self.task.tuned(predictions, self.development, calibration)),
            "calibration": calibration.as_dict() if calibration else {},
            "collapsed": self.collapsed(predictions),
        }

    def parts(self, learnt: Mapping[str, Any]) -> list[Part]:
        """Return the task with what `learnt` gave."""
        calibration = learnt["calibration"]
        return [
            Part(
                task=recipe.build(type(self.task), learnt["tuned"], where="The checkpoint"),
                calibration=Calibration(**calibration) if calibration else None,
                collapsed=learnt["collapsed"],
            )
        ]

    @property
    def pairs(self) -> bool:
        """Return whether there are sequences of two texts; of sequences made on demand the first record's tell."""
        if isinstance(self.encoded, Ready):
            return bool(self.encoded.examples.segments.any())
        return any(
            example.segments.any() for record in self.training[:1] for example in self.task.encode(record, self.packer)
        )

    @cached_property
    def truncation(self) -> str:
        """How much of the texts does not fit and what becomes of it, in words; counted once for all trials."""
        return long_texts(
            self.task, self.packer, training=self.encoded, records=self.training, development=self.development
        )


def _remarks(task: Task, records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Yield what was mended or is amiss, a line a record; that nothing is learnt from one is amiss."""
    for split, found in records.items():
        for record in found:
            if record.remark:
                yield f"{record.place}: {record.remark}"
            elif split == "train" and not task.teaches(record):
                yield f"{record.place}: its label is not known: it is not learnt from"


def fingerprint(records: Mapping[str, Sequence[Record]]) -> str:
    """Return a hash of the texts and labels of all records."""
    digest = hashlib.sha256()
    for split, found in sorted(records.items()):
        digest.update(split.encode())
        for record in found:
            digest.update(repr((record.texts, record.label)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
