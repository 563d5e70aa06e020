"""Long texts: how many rows of a fine-tuning do not fit into a sequence, and whether they are cut or windowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.data.encoded_records import EncodedAhead, EncodedRecords
from osbert.data.examples import Examples
from osbert.data.pack import Packer
from osbert.evaluation.score import refuse_long
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL
from osbert.tasks import Record, Task
from osbert.text.file_tokenizer import AnyTokenizer, for_tasks

Counts = NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class TextFit:
    """Counts for n records, (n,) each: `sequences`, and pieces that are `cut`; `tokens`: the total that is read.

    A text that is repeated in the sequences of one record, such as the context before each choice, counts once.
    """

    sequences: Counts
    cut: Counts
    tokens: int

    def describe(self, task: Task, length: int) -> str:
        """Describe how many texts do not fit and what happens to them; "" if all fit."""
        if self.cut.any():
            long, pieces = self.cut > 0, int(self.cut.sum())
            fraction = pieces / (pieces + self.tokens)
            fate = f"{pieces:,} pieces ({fraction:.1%} of all) {task.description.unread} are not read"
        elif (self.sequences > 1).any() and task.batching == "sequences":
            long = self.sequences > 1
            fate = f"they are read in {self.sequences[long].sum():,} overlapping windows"
        else:
            return ""
        what = "rows" if task.batching != "sequences" else "texts"  # of a row with choices several texts may be cut
        bound = task.description.bound(length)
        return f"{long.sum():,} of {len(long):,} {what} ({long.mean():.1%}) are longer than {bound}; {fate}."


@dataclass(frozen=True, kw_only=True)
class ModelReader:
    """The tokenizer of a model and its longest sequence, known before the weights are read."""

    tokenizer: AnyTokenizer
    length: int

    @classmethod
    def of(cls, model: Path) -> ModelReader:
        """Return the reader of the model in a folder. Its hashes are compared later, when the weights are read.

        Raises UserError if its config or its tokenizer cannot be read.
        """
        folder = open_folder(model, CAREFUL.again)
        return cls(tokenizer=for_tasks(folder.tokenizer), length=folder.architecture.length)

    def check(self, task: Task, records: Mapping[str, Sequence[Record]]) -> None:
        """Raise UserError that lists every record that does not fit, if the task does not allow truncation.

        `records`: by split: "train" and "dev" of a fine-tuning, "test" of a prediction.
        """
        read = [
            record
            for split, split_records in records.items()
            for record in split_records
            if split != "train" or not task.lacks(record)
        ]
        refuse_long(task, read, Packer(tokenizer=self.tokenizer, length=min(task.length, self.length)))


def long_texts(
    task: Task, packer: Packer, *, training: EncodedRecords, records: Sequence[Record], development: Sequence[Record]
) -> str:
    """Describe what happens to texts that do not fit, one line for each split; "" if all fit.

    `training`: the sequences of the training `records`. A `lazy` task (not encoded ahead) describes it itself.
    """
    if not isinstance(training, EncodedAhead):
        cuts = {"train": task.description.cuts(records, packer), "dev": task.description.cuts(development, packer)}
        return "\n".join(f"{split}: {cut}" for split, cut in cuts.items() if cut)
    parts = {
        "train": _measure_encoded(training, together=task.batching != "sequences"),
        "dev": _encode_and_measure(task, development, packer),
    }
    descriptions = {split: part.describe(task, packer.length) for split, part in parts.items()}
    lines = [f"{split}: {line}" for split, line in descriptions.items() if line]
    if any(part.cut.any() for part in parts.values()):
        lines[-1] += f" {task.description.longer}"
    return "\n".join(lines)


def _measure_encoded(ready: EncodedAhead, *, together: bool) -> TextFit:
    owners = np.repeat(np.arange(len(ready)), ready.counts)
    cut = np.bincount(owners, weights=ready.examples.truncated, minlength=len(ready)).astype(np.int64)
    return TextFit(sequences=ready.counts, cut=cut, tokens=_tokens(ready.examples, owners, together=together))


def _encode_and_measure(task: Task, records: Sequence[Record], packer: Packer) -> TextFit:
    sequences, cut, tokens = np.ones(len(records), np.int64), np.zeros(len(records), np.int64), 0
    for index, record in enumerate(records):
        examples = Examples.of(task.encode(record, packer))
        sequences[index], cut[index] = len(examples), int(examples.truncated.sum())
        tokens += _tokens(examples, np.zeros(len(examples), np.int64), together=task.batching != "sequences")
    return TextFit(sequences=sequences, cut=cut, tokens=tokens)


def _tokens(examples: Examples, owners: Counts, *, together: bool) -> int:
    """Return the number of tokens; `owners` (B,): the record of each sequence, in order.

    If `together`, the first text of a record's later sequences repeats the one before and is not counted.
    """
    # A sequence with the owner of the one before it repeats its context; only its second text is new.
    again = np.diff(owners, prepend=-1) == 0 if together else np.zeros(len(owners), np.bool_)
    return int((~np.repeat(again, examples.lengths) | _second(examples)).sum())


def _second(examples: Examples) -> NDArray[np.bool_]:
    """Return a mask (N,) of the tokens of second texts, with the special token at the end of each."""
    # The second text of a pair comes after two special tokens of its sequence ([CLS] and the first [SEP]).
    seen = np.cumsum(examples.special, dtype=np.int64)  # specials so far
    seen = seen - np.repeat(seen[examples.starts] - 1, examples.lengths)  # those of the same sequence
    closing = np.zeros(len(seen), np.bool_)
    closing[examples.starts + examples.lengths - 1] = True
    return (seen > 1) & (~examples.special | closing)
