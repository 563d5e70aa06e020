"""Predicts labels by name with a model that was not trained for them, in the way that suits the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import numpy as np

from osbert.data.example import Example
from osbert.errors import Problems, UserError
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import Encoded, decode_records
from osbert.inference.label_scorer import CandidateRecord, ClassScorer, LabelScorer
from osbert.inference.label_settings import GivenLabels, LabelNames, NamingOptions, read_labels
from osbert.inference.model import LoadedModel, Sample, Text, samples, windows
from osbert.tasks import Prediction, Record
from osbert.tasks.probabilities import as_array, with_array
from osbert.terminal import one_line
from osbert.text.file_tokenizer import unknown_id

LEAST, SAMPLE = 32, 1024
"""Fewest and most texts by which probabilities are calibrated."""


def choose_scorer(engine: LoadedModel, options: NamingOptions, *, tokens: int = TOKENS) -> LabelScorer:
    """Return the way to ask a model for labels: by its task if that reads labels with the text, else for classes.

    Raises UserError as `choose_class_scorer`.
    """
    if engine.task is not None and (scorer := engine.task.label_scorer()):
        task_scorer: LabelScorer = scorer(engine, options, tokens=tokens)
        return task_scorer
    return choose_class_scorer(engine, options, tokens=tokens)


def choose_class_scorer(engine: LoadedModel, options: NamingOptions, *, tokens: int = TOKENS) -> ClassScorer:
    """Return the way to ask a model for classes: entailment, similarity or cloze, by what the model is.

    Raises UserError if it can do none of them, or not with these options.
    """
    # One way alone is imported.
    if engine.task is not None and engine.task.form == "sequence" and engine.task.values == "classes":
        from osbert.inference.entailment import EntailmentScorer

        return EntailmentScorer(engine, options, tokens=tokens)
    scorer: type[ClassScorer] | None = None
    sentences = engine.sentence_model()
    if (engine.task is None or engine.task.form == "vectors") and sentences is not None and sentences.kind == "dense":
        from osbert.inference.similarity import SimilarityScorer

        scorer = SimilarityScorer
    elif engine.task is None and engine.masks is not None:
        from osbert.inference.cloze import ClozeScorer

        scorer = ClozeScorer
    if scorer is None:
        what = f"a model for {engine.task.name}" if engine.task else "an encoder without a task or a language head"
        raise UserError(
            f"{engine.folder} is {what}: it cannot predict classes by name. That takes a model of entailment (a run of "
            "osbert finetune mnli; osbert convert makes one of a published model), a sentence encoder such as minilm, "
            "or a masked-language model.",
            code="unsupported-model",
        )
    if options.multi:
        raise UserError(
            f"{engine.folder} is no model of entailment: it compares classes, of which one holds. Whether "
            "several hold, or a single one, a model of entailment tells, such as a run of osbert finetune mnli.",
            code="options-exclude-each-other",
        )
    return scorer(engine, options, tokens=tokens)


class LabelPredictor:
    """Predicts which of `labels` a text has; without them, records bring candidates of their own.

    In place of an Engine, it predicts texts and records with the task `fine_tuned`.
    """

    def __init__(
        self, engine: LoadedModel, labels: LabelNames, options: NamingOptions, *, tokens: int = TOKENS
    ) -> None:
        """Choose a way to ask. Raises UserError that lists the labels which the model cannot tell or cannot read."""
        self.scorer = choose_scorer(engine, options, tokens=tokens)
        self.engine, self.labels, self.options = engine, labels, options
        self.folder, self.tokenizer, self.packer = engine.folder, engine.tokenizer, self.scorer.packer
        self.fine_tuned = self.task = self.scorer.task_for(labels)
        self.calibrates = bool(self.scorer.calibrated if options.calibrate is None else options.calibrate)
        if self.calibrates and not self.scorer.joint:
            raise UserError(
                "--calibrate is for classes that a model compares; entailment is asked for each by itself. Remove it.",
                code="options-exclude-each-other",
            )
        self._weights: np.ndarray[Any, Any] | None = None
        problems = self._problems()
        self.check(labels, "labels", problems)
        problems.stop_if_any()

    def _problems(self) -> Problems:
        return Problems(heading=f"These {self.scorer.subject} cannot be predicted by name")

    def check(self, labels: LabelNames, where: str, problems: Problems) -> None:
        """Add labels that the model cannot read, that it reads alike, or that are too few, to `problems`."""
        if 0 < len(labels) < self.scorer.fewest:
            problems.add(
                f"{where}: one class is always predicted. Give two or more; with multi, one alone holds or not.",
                code="nothing-to-learn",
            )
        names: dict[tuple[int, ...], str] = {}
        for label in labels:
            ids = tuple(self.tokenizer.encode(self.scorer.reads(label)).tolist())
            if (other := names.setdefault(ids, label.name)) != label.name:
                problems.add(
                    f"{where}: '{one_line(label.name)}' and '{one_line(other)}' are the same to this model's "
                    "tokenizer. Give one of them, or descriptions that differ.",
                    code="duplicate-name",
                )
            for problem in self.scorer.problems(label):
                problems.add(f"{where}: '{one_line(label.name)}': {problem}.", code="invalid-value")

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remarks on the model's folder, how it is asked, and names that differ in case alone."""
        way = self.scorer.describe(self.labels)
        if self.scorer.joint:
            fitted = f"calibrated on the first {SAMPLE:,} texts if there are {LEAST} or more"
            way += f"; {fitted if self.calibrates and self.labels else 'not calibrated'}"
        remarks = [f"{self.scorer.subject} by name: {way}"]
        folded = Counter(label.name.casefold() for label in self.labels)
        if alike := [one_line(label.name) for label in self.labels if folded[label.name.casefold()] > 1]:
            remarks.append(f"these names differ in case alone: {', '.join(alike[:10])}")
        return (*self.engine.remarks, *remarks)

    def predict(self, texts: Iterator[Text] | Collection[Text]) -> Iterator[Prediction] | list[Prediction]:
        """Return the prediction for each text, as `Engine.predict` does. The first texts calibrate all."""
        if isinstance(texts, Iterator):
            return chain.from_iterable(self._predict(part, first) for first, part in windows(texts, "predict"))
        return self._predict(samples(texts, "predict"), 0)

    def predict_candidates(self, texts: Collection[Text], labels: Sequence[LabelNames]) -> list[Prediction]:
        """Return the prediction for each text among labels of its own. Raises UserError as the constructor does."""
        problems = self._problems()
        for index, names in enumerate(labels):
            self.check(names, f"labels[{index}]", problems)
        problems.stop_if_any()
        records = self._list_records(samples(texts, "predict"), 0)
        return self.predict_records(
            [candidate_record(record, names) for record, names in zip(records, labels, strict=True)]
        )

    def _predict(self, given: Sequence[Sample], first: int) -> list[Prediction]:
        records = self._list_records(given, first)
        if first == 0:
            self.calibrate(records[:SAMPLE])
        return self.predict_records(records)

    def _list_records(self, given: Sequence[Sample], first: int) -> list[Record]:
        if wrong := [index for index, sample in enumerate(given, first) if len(sample) > 1]:
            raise UserError(
                f"texts[{wrong[0]}]: classes by name are predicted for single texts, not for pairs.",
                code="wrong-number-of-texts",
            )
        return [self.fine_tuned.record_of(sample) for sample in given]

    def calibrate(self, records: Sequence[Record]) -> None:
        """Fit the weights of the classes to texts, where that is asked for and there are enough of them."""
        shared = [record for record in records if self._candidates(record) is self.labels]
        if self.calibrates and self.labels and self._weights is None and len(shared) >= LEAST:
            predictions = self._predict_raw(shared)
            self._weights = 1 / np.mean([as_array(prediction.probabilities) for prediction in predictions], axis=0)

    def ask_rows(self) -> None:
        """Take the labels of rows, so that results have no field for each of the shared ones."""
        self.fine_tuned = self.scorer.task_for(())

    def encode(self, record: Record) -> list[Example]:
        """Return the sequences by which a record is scored."""
        return self.scorer.encode(_plain(record), self._candidates(record))

    def predict_records(self, records: Sequence[Record]) -> list[Prediction]:
        """Return the prediction for each record."""
        return [self._reweigh(*pair) for pair in zip(self._predict_raw(records), records, strict=True)]

    def predict_encoded(self, records: Iterable[Encoded]) -> list[Prediction]:
        """Return the prediction for each record, given its sequences."""

        def decode(outputs: Sequence[Any], record: Record, examples: Sequence[Example]) -> Prediction:
            return self.scorer.decode(outputs, _plain(record), self._candidates(record), examples)

        unknown = unknown_id(self.tokenizer)
        return decode_records(records, outputs=self.scorer.outputs, decode=decode, unknown=unknown)

    def _predict_raw(self, records: Sequence[Record]) -> list[Prediction]:
        return self.predict_encoded((record, self.encode(record)) for record in records)

    def _candidates(self, record: Record) -> LabelNames:
        return (isinstance(record, CandidateRecord) and record.candidates) or self.labels

    def _reweigh(self, prediction: Prediction, record: Record) -> Prediction:
        """Return the prediction with calibrated probabilities (batch calibration, Zhou et al. 2024)."""
        if self._weights is None or self._candidates(record) is not self.labels:
            return prediction
        probabilities = as_array(prediction.probabilities) * self._weights
        probabilities /= probabilities.sum()
        value = self.labels[int(probabilities.argmax())].name
        return replace(prediction, value=value, probabilities=with_array(prediction.probabilities, probabilities))


def _plain(record: Record) -> Record:
    """Return a record as its task reads it."""
    return record.record if isinstance(record, CandidateRecord) and record.record else record


def candidate_record(record: Record, candidates: LabelNames) -> CandidateRecord:
    """Return a record with candidates of its own."""
    values = {field.name: getattr(record, field.name) for field in fields(Record)}
    return CandidateRecord(**{**values, "label": None, "candidates": candidates, "record": record})


def predict_names(
    engine: LoadedModel,
    texts: Iterator[Text] | Collection[Text],
    labels: GivenLabels | Sequence[Sequence[str]],
    options: NamingOptions,
    *,
    tokens: int,
) -> Iterator[Prediction] | list[Prediction]:
    """Return predictions as `Engine.predict` with labels: one list of them for all texts, or one for each text."""
    if isinstance(labels, str):
        raise TypeError(f"labels is a list of names, or descriptions by name: labels=[{labels!r:.40}, ...]")
    given: Any = labels if isinstance(labels, Mapping) else [*labels]
    if not given or isinstance(given, Mapping) or isinstance(given[0], str):
        names = read_labels(given, where="labels")
        return LabelPredictor(engine, names, options, tokens=tokens).predict(texts)
    candidates = [read_labels(row, where=f"labels[{index}]") for index, row in enumerate(given)]
    if isinstance(texts, Iterator) or len(texts) != len(candidates):
        count = "an iterator" if isinstance(texts, Iterator) else f"{len(texts):,}"
        raise UserError(
            f"labels has {len(candidates):,} lists, but texts is {count}: give one list of names for all texts, or one "
            "for each text of a list.",
            code="wrong-number-of-values",
        )
    return LabelPredictor(engine, (), options, tokens=tokens).predict_candidates(texts, candidates)
