"""The rows of a fine-tuning as a tokenizer lays them out: made once, also where several trials learn from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from osbert.data.encoded import Encoded, OnDemand, Ready
from osbert.data.pack import Packer
from osbert.tasks import Record, Task


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """What a task is learnt from and scored on.

    `task` is fitted. `training`: the records that have a label; `encoded`: their sequences. `development`: the records
    that every epoch is scored on. `fingerprint`: a hash of all texts and labels. `remarks`: what was mended or is amiss
    in the data, a line a record.
    """

    task: Task
    packer: Packer
    training: Sequence[Record]
    development: Sequence[Record]
    encoded: Encoded
    fingerprint: str
    remarks: Sequence[str]

    @classmethod
    def of(cls, task: Task, records: Mapping[str, Sequence[Record]], packer: Packer) -> Self:
        """Encode the training records, unless the task is `lazy`; `records` has "train" and "dev"."""
        training = [record for record in records["train"] if record.label is not None]
        groups = (task.encode(record, packer) for record in training)
        return cls(
            task=task,
            packer=packer,
            training=training,
            development=records["dev"],
            encoded=OnDemand(training, lambda record: task.encode(record, packer)) if task.lazy else Ready(groups),
            fingerprint=fingerprint(records),
            remarks=[f"{one.place}: {one.remark}" for found in records.values() for one in found if one.remark],
        )

    @property
    def pairs(self) -> bool:
        """Return whether there are sequences of two texts; of sequences made on demand the first record's tell."""
        if isinstance(self.encoded, Ready):
            return bool(self.encoded.examples.segments.any())
        return any(
            example.segments.any() for record in self.training[:1] for example in self.task.encode(record, self.packer)
        )

    @property
    def truncation(self) -> str:
        """Return in words how much of the training texts does not fit, "" when everything does."""
        if isinstance(self.encoded, Ready):
            pieces, whole = int(self.encoded.examples.truncated.sum()), len(self.encoded.examples.ids)
            texts = int((self.encoded.examples.truncated > 0).sum()), len(self.encoded.examples)
            share = f" ({pieces / (pieces + whole):.1%} of all)"
        else:
            cut = [self.task.cut(record, self.packer) for record in self.training]
            pieces, texts, share = sum(cut), (sum(one > 0 for one in cut), len(cut)), ""
        if not pieces:
            return ""
        return (
            f"{texts[0]:,} of {texts[1]:,} texts ({texts[0] / texts[1]:.1%}) are longer than {self.packer.length} "
            f"tokens; {pieces:,} pieces{share} are not read. --length N changes this, up to the model's own."
        )


def fingerprint(records: Mapping[str, Sequence[Record]]) -> str:
    """Return a hash of the texts and labels of all records."""
    digest = hashlib.sha256()
    for split, found in sorted(records.items()):
        digest.update(split.encode())
        for record in found:
            digest.update(repr((record.texts, record.label)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
