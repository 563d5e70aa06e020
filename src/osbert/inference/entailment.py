"""Classes by name with a model of natural language inference: does the text entail "This text is about ..."?

Yin et al. 2019, section 4; the probabilities are those of transformers' zero-shot-classification pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.inference.label_scorer import ClassScorer, Logits
from osbert.inference.label_settings import SLOT, LabelName, LabelNames, NamingOptions
from osbert.inference.model import LoadedModel
from osbert.tasks import Record
from osbert.tasks.tables.classes import list_labels
from osbert.tasks.tables.texts import TextTask

MANY = 20
"""Number of classes above which it is said how often a text is read: with 2,000 it takes as long as 2,000 texts."""


def entailment_index(labels: Sequence[str]) -> int | None:
    """Return the index of the label of entailment; None if there is none.

    >>> entailment_index(["contradiction", "Entailment", "neutral"]), entailment_index(["not_entailment", "no"])
    (1, None)
    """
    return next((index for index, label in enumerate(labels) if label.casefold().startswith("entail")), None)


class EntailmentScorer(ClassScorer):
    """Scores a class by the logit of entailment, or with `multi` by its distance from that of contradiction.

    Without a label that begins with "contradict", as in RTE, the other of two labels takes its part.
    """

    template = f"This text is about {SLOT}."
    joint = False

    def __init__(self, engine: LoadedModel, options: NamingOptions, *, tokens: int) -> None:
        """Find the two labels. Raises UserError if the model has none, or reads pairs in another way."""
        super().__init__(engine, options, tokens=tokens)
        task = engine.fine_tuned
        labels = task.classes
        entailment = entailment_index(labels)
        if entailment is None:
            raise UserError(
                f"{engine.folder} is a classifier with the labels {list_labels(labels)}; to predict others by name, "
                "one of them must be an entailment, as in a run of osbert finetune mnli. Give a model of entailment, a "
                "sentence encoder or a masked-language model.",
                code="unsupported-model",
            )
        if not isinstance(task, TextTask) or task.apart or (task.text and not task.pair):
            reads = "single texts" if isinstance(task, TextTask) and not task.apart else "each text by itself"
            raise UserError(
                f"{engine.folder} reads {reads}; classes by name need a model that reads premise and hypothesis "
                "together.",
                code="unsupported-model",
            )
        others = [index for index in range(len(labels)) if index != entailment]
        against = next((index for index in others if labels[index].casefold().startswith("contradict")), None)
        if against is None and len(others) != 1 and options.multi:
            raise UserError(
                f"{engine.folder} has the labels {list_labels(labels)}, none of which is a contradiction, with which "
                "an entailment is compared to tell whether a class holds. Ask which of several classes holds.",
                code="unsupported-model",
            )
        self.task = task
        self.entailment = entailment
        self.contradiction = others[0] if against is None else against

    def describe(self, labels: LabelNames) -> str:
        """Describe the hypothesis, and the label that is read."""
        label = self.task.classes[self.entailment]
        way = f'the probability that the text entails (label {label}) "{self.before}{SLOT}{self.behind}"'
        way += "; each class by itself" if self.multi else ""
        return f"{way}; a text is read {len(labels):,} times, once with each class" if len(labels) > MANY else way

    def passes(self, labels: LabelNames) -> int:
        return len(labels)

    def problems(self, label: LabelName) -> Iterator[str]:
        """Yield why a class cannot be asked for, such as a hypothesis of which a part would be cut."""
        yield from super().problems(label)
        room = self.packer.room(2) // 2
        if (count := len(self.packer.tokenizer.encode(self.reads(label)))) > room:
            yield f"its hypothesis has {count:,} pieces, more than half of a sequence ({room:,})"

    def sequences(self, text: str, labels: LabelNames) -> list[Example]:
        """Return the sequences of the text with each hypothesis; `record` of each is the index of its class."""
        groups = [
            self.task.encode(Record(number=index, texts=(text, self.reads(label))), self.packer)
            for index, label in enumerate(labels)
        ]
        truncated = max(sum(example.truncated for example in group) for group in groups)
        first, *others = [replace(example, truncated=0) for group in groups for example in group]
        return [replace(first, truncated=truncated), *others]

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Return the logits of each sequence."""
        return self.engine.backend.outputs(self.task, examples, tokens=self.tokens)

    def logits(self, outputs: Sequence[Any], labels: LabelNames, examples: Sequence[Example]) -> Logits:
        """Return the logits of entailment, or with `multi` their distances from those of contradiction."""
        parts: list[list[Any]] = [[] for _ in labels]
        for example, output in zip(examples, outputs, strict=True):
            parts[example.record].append(output)
        assert isinstance(self.task, TextTask)
        scores = np.stack([self.task.join_outputs(part, axis=0, dtype=np.float64) for part in parts])  # (K, labels)
        entailment: Logits = scores[:, self.entailment]
        return entailment - scores[:, self.contradiction] if self.multi else entailment
