"""The contract of a way to ask a model for labels by name: a text becomes sequences, their outputs a prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert import components
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.inference.label_settings import LabelName, LabelNames, NamingOptions
from osbert.inference.model import LoadedModel, require_finite_scores
from osbert.tasks import Prediction, Record, Task

Logits = NDArray[np.float64]
CACHED = 256
"""Most lists of labels whose tasks are kept."""


@dataclass(frozen=True, kw_only=True)
class CandidateRecord(Record):
    """A text with the classes that are asked for, of which it has one, or with --multi any number.

    `record`: the text as its task reads it.
    """

    candidates: LabelNames = ()
    record: Record | None = None


class LabelScorer(ABC):
    """One way to predict which labels of a list a text has. `packer`: lays out its sequences.

    Sequences of many texts are computed together (`outputs`), whatever their labels are.
    """

    subject: ClassVar[str]
    """What is predicted, for messages."""
    joint: ClassVar[bool] = False
    """Whether probabilities are of labels of which one holds; otherwise each can hold by itself, too."""
    calibrated: ClassVar[bool] = False
    """Whether probabilities are calibrated where the user does not say."""

    packer: Packer

    def __init__(self, engine: LoadedModel, options: NamingOptions, *, tokens: int) -> None:
        """Use a model. `tokens`: most tokens in a batch."""
        self.engine = engine
        self.tokens = tokens
        self.multi = options.multi
        self.packer = engine.packer
        self._tasks: dict[LabelNames, Task] = {}

    @property
    @abstractmethod
    def fewest(self) -> int:
        """The fewest labels that can be asked for."""

    @abstractmethod
    def describe(self, labels: LabelNames) -> str:
        """Return what the model does with a text and the name of a label, in a sentence."""

    @abstractmethod
    def reads(self, label: LabelName) -> str:
        """Return what the model reads for a label."""

    @abstractmethod
    def problems(self, label: LabelName) -> Iterator[str]:
        """Yield why a label cannot be asked for."""

    @abstractmethod
    def make_task(self, labels: LabelNames) -> Task:
        """Return the task whose predictions have these labels."""

    def task_for(self, labels: LabelNames) -> Task:
        """Return the task whose predictions have these labels, kept for the next text with the same ones."""
        task = self._tasks.get(labels)
        if task is None:
            if len(self._tasks) >= CACHED:
                self._tasks.clear()
            task = self._tasks[labels] = self.make_task(labels)
        return task

    def passes(self, labels: LabelNames) -> int:
        """Return the number of sequences of a short text: 1 if labels are not read with it."""
        return 1

    @abstractmethod
    def encode(self, record: Record, labels: LabelNames) -> list[Example]:
        """Return the sequences of a text; `truncated` of all together counts the pieces that are not read."""

    @abstractmethod
    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Return the model's output for each sequence."""

    @abstractmethod
    def decode(
        self, outputs: Sequence[Any], record: Record, labels: LabelNames, examples: Sequence[Example]
    ) -> Prediction:
        """Return the prediction from the outputs of a text's sequences."""


class ClassScorer(LabelScorer):
    """Scores classes, of which a text has one, or with `multi` any number."""

    subject = "classes"
    joint = True
    template: ClassVar[str]
    """The sentence in which a class is asked for where the user gives none."""

    def __init__(self, engine: LoadedModel, options: NamingOptions, *, tokens: int) -> None:
        """Use a model. Raises UserError if the template cannot be used."""
        super().__init__(engine, options, tokens=tokens)
        self.before, self.behind = options.template_or(self.template)

    @property
    def fewest(self) -> int:
        """The fewest classes: a single one is only a question if it may not hold."""
        return 1 if self.multi else 2

    def reads(self, label: LabelName) -> str:
        return f"{self.before}{label.text}{self.behind}"

    def problems(self, label: LabelName) -> Iterator[str]:
        if not len(self.packer.tokenizer.encode(self.reads(label))):
            yield "the model's tokenizer finds nothing to read in it"

    def make_task(self, labels: LabelNames) -> Task:
        """Return the task whose answers have the form of a classifier's for these classes."""
        kind: type[Task] = components.find("tasks", "multilabel" if self.multi else "classify", base=Task)
        task, _ = kind.of_labels([label.name for label in labels])
        return task

    def encode(self, record: Record, labels: LabelNames) -> list[Example]:
        return self.sequences(record.texts[0], labels)

    def decode(
        self, outputs: Sequence[Any], record: Record, labels: LabelNames, examples: Sequence[Example]
    ) -> Prediction:
        scores = self.logits(outputs, labels, examples)
        require_finite_scores([scores], self.engine.folder)
        return self.task_for(labels).decode([scores], record, examples)

    @abstractmethod
    def sequences(self, text: str, labels: LabelNames) -> list[Example]:
        """Return the sequences of a text."""

    @abstractmethod
    def logits(self, outputs: Sequence[Any], labels: LabelNames, examples: Sequence[Example]) -> Logits:
        """Return the scores (K,) of the classes from the outputs of a text's sequences: log-odds if several may hold,
        else with a softmax that is the probability of each."""
