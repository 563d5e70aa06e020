"""How transformers' models learn osbert's records, for finetune.py: features and predictions of each kind of task.

They are those of transformers' own run_glue.py, run_ner.py, run_swag.py and run_qa.py, without the Trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import transformers
from torch import Tensor

from osbert.reading.tagged.schemes import read_tags, write_tags
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.span.questions import AnswerCandidate, AnswerPrediction
from osbert.tasks.kinds.tag import Tag
from osbert_lab.multiple_choice.choose import Choose

IGNORED = -100
"""The label that torch's cross-entropy passes over."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """What transformers learns or scores at once: `sequences`, one but for choices, by the names of their columns.

    `targets`: labels by the names the model takes. `record`: the place of its record. `places`: of each token, the
    word whose first piece it is, or its characters of a paragraph; None for other tokens.
    """

    sequences: list[dict[str, list[int]]]
    targets: dict[str, int | float | list[int]]
    record: int
    places: list[Any] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """How transformers learns a task of texts or pairs with a label or a number. Other kinds of tasks build on it."""

    task: Task
    tokenizer: Any

    model: ClassVar[Any] = transformers.BertForSequenceClassification

    @property
    def outputs(self) -> int:
        """Return how many numbers the model gives."""
        return 1 if isinstance(self.task, Regress) else len(self.task.labels)

    def features(self, records: Sequence[Record]) -> Iterator[Feature]:
        columns = [list(column) for column in zip(*(record.texts for record in records))]
        encoded = self.tokenizer(*columns, truncation="longest_first", max_length=self.task.length)
        for place, record in enumerate(records):
            label = record.label if isinstance(self.task, Regress) else self.task.labels.index(record.label)
            yield Feature(sequences=[sequence(encoded, place)], targets={"labels": label}, record=place)

    def scores(self, output: Any) -> Tensor:
        """Return the scores (B, ...) of a batch."""
        return output.logits

    def predictions(
        self, records: Sequence[Record], features: Sequence[Feature], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        if isinstance(self.task, Regress):
            return [Prediction(value=float(one[0])) for one in scores]
        return [Prediction(value=self.task.labels[int(one.argmax())]) for one in scores]


@dataclass(frozen=True, kw_only=True)
class Words(Texts):
    """Labels of words, on their first pieces, as run_ner.py."""

    model: ClassVar[Any] = transformers.BertForTokenClassification

    def features(self, records: Sequence[Record]) -> Iterator[Feature]:
        known = {label: place for place, label in enumerate(self.task.labels)}
        words = [[record.texts[0][start:end] for start, end in record.words] for record in records]
        encoded = self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=self.task.length)
        for place, record in enumerate(records):
            tags = write_tags(record.label, len(record.words), self.task.scheme)
            numbers = encoded.word_ids(place)
            first = [None if number == before else number for before, number in zip([None, *numbers], numbers)]
            labels = [IGNORED if number is None else known[tags[number]] for number in first]
            yield Feature(sequences=[sequence(encoded, place)], targets={"labels": labels}, record=place, places=first)

    def predictions(
        self, records: Sequence[Record], features: Sequence[Feature], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        found = []
        for feature, one in zip(features, scores):
            tags = ["O"] * len(records[feature.record].words)
            for number, label in zip(feature.places, one.argmax(-1).tolist()):
                if number is not None:
                    tags[number] = self.task.labels[label]
            found.append(Prediction(value=tuple(read_tags(tags))))
        return found


@dataclass(frozen=True, kw_only=True)
class Choices(Texts):
    """One of several texts, as run_swag.py."""

    model: ClassVar[Any] = transformers.BertForMultipleChoice
    outputs: ClassVar[int] = 1

    def features(self, records: Sequence[Record]) -> Iterator[Feature]:
        for place, record in enumerate(records):
            context, *choices = record.texts
            contexts = [context] * len(choices)
            encoded = self.tokenizer(contexts, choices, truncation="longest_first", max_length=self.task.length)
            sequences = [sequence(encoded, number) for number in range(len(choices))]
            yield Feature(sequences=sequences, targets={"labels": record.names.index(record.label)}, record=place)

    def predictions(
        self, records: Sequence[Record], features: Sequence[Feature], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        return [Prediction(value=record.names[int(one.argmax())]) for record, one in zip(records, scores)]


@dataclass(frozen=True, kw_only=True)
class Spans(Texts):
    """Answers as spans of paragraphs, as run_qa.py."""

    model: ClassVar[Any] = transformers.BertForQuestionAnswering
    outputs: ClassVar[int] = 2
    shared: ClassVar[int] = 128

    def features(self, records: Sequence[Record]) -> Iterator[Feature]:
        encoded = self.tokenizer(
            [record.texts[0].strip() for record in records],
            [record.texts[1] for record in records],
            truncation="only_second",
            max_length=self.task.length,
            stride=self.shared,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for number, place in enumerate(encoded["overflow_to_sample_mapping"]):
            texts, ranges = encoded.sequence_ids(number), encoded["offset_mapping"][number]
            places = [characters if text == 1 else None for text, characters in zip(texts, ranges)]
            start, end = covered(records[place], places)
            targets: dict[str, int | float | list[int]] = {"start_positions": start, "end_positions": end}
            yield Feature(sequences=[sequence(encoded, number)], targets=targets, record=place, places=places)

    def scores(self, output: Any) -> Tensor:
        return torch.stack([output.start_logits, output.end_logits], -1)

    def predictions(
        self, records: Sequence[Record], features: Sequence[Feature], scores: Sequence[np.ndarray]
    ) -> list[Prediction]:
        found: list[list[AnswerCandidate]] = [[] for _ in records]
        none = [float("inf")] * len(records)
        for feature, one in zip(features, scores):
            text = records[feature.record].texts[1]
            found[feature.record] += candidates(self.task, text, feature.places, one[: len(feature.places)])
            none[feature.record] = min(none[feature.record], float(one[0].sum()))
        return [self._answer(listed, score) for listed, score in zip(found, none)]

    def _answer(self, listed: Sequence[AnswerCandidate], none: float) -> AnswerPrediction:
        nothing = AnswerCandidate(text="", start=-1, end=-1, score=none)
        best = max(listed, key=lambda one: one.score, default=nothing)
        margin = best.score - none if self.task.unanswerable == "yes" and listed else None
        chosen = nothing if margin is not None and margin <= 0 else best
        return AnswerPrediction(value=chosen.text, chosen=chosen, candidates=(best, nothing), margin=margin)


def candidates(task: Task, text: str, places: Sequence[Any], scores: np.ndarray) -> Iterator[AnswerCandidate]:
    """Yield the spans of the likeliest starts and ends (n, 2) of a window."""
    first, last = np.argsort(-scores, axis=0)[: task.candidates].T.tolist()
    for start in first:
        for end in last:
            within = places[start] is not None and places[end] is not None
            if within and start <= end < start + task.answer_length:
                begin, stop = places[start][0], places[end][1]
                total = float(scores[start, 0] + scores[end, 1])
                yield AnswerCandidate(text=text[begin:stop], start=begin, end=stop, score=total)


def covered(record: Record, places: Sequence[Any]) -> tuple[int, int]:
    """Return the first and last token of the answer, twice 0, [CLS], where it is not in the window."""
    gold = next((one for one in record.label if one.start >= 0), None)
    if gold is None:
        return 0, 0
    begin, stop = gold.start, gold.start + len(gold.text)
    inside = [token for token, place in enumerate(places) if place and place[0] < stop and begin < place[1]]
    whole = inside and places[inside[0]][0] <= begin and stop <= places[inside[-1]][1]
    return (inside[0], inside[-1]) if whole else (0, 0)


def sequence(encoded: Any, place: int) -> dict[str, list[int]]:
    """Return the columns of one sequence."""
    return {name: encoded[name][place] for name in ("input_ids", "token_type_ids", "attention_mask")}


def collate(features: Sequence[Feature], size: int) -> dict[str, Tensor]:
    """Return a batch: columns (B, n), of choices (B, C, n), padded to `size` or, where it is 0, the longest."""
    sequences = [one for feature in features for one in feature.sequences]
    size = size or max(len(one["input_ids"]) for one in sequences)
    shape = (len(features), -1, size) if len(sequences) > len(features) else (-1, size)
    batch = {
        name: torch.tensor([one[name] + [0] * (size - len(one[name])) for one in sequences]).view(shape)
        for name in sequences[0]
    }
    for name in features[0].targets:
        rows = [feature.targets[name] for feature in features]
        padded = [row + [IGNORED] * (size - len(row)) if isinstance(row, list) else row for row in rows]
        batch[name] = torch.tensor(padded)
    return batch


def kind_of(task: Task) -> type[Texts]:
    """Return how transformers learns a task."""
    kinds: dict[type[Task], type[Texts]] = {Tag: Words, Choose: Choices, Span: Spans}
    return next((kind for base, kind in kinds.items() if isinstance(task, base)), Texts)
