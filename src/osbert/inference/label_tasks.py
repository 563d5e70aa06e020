"""Predicts labels by name: with a task that reads them with the text, such as spans by name, or as classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from osbert.data.example import Example
from osbert.errors import Problems, UserError
from osbert.evaluation.forward import TOKENS
from osbert.inference.label_predictor import LabelPredictor
from osbert.inference.label_scorer import CandidateRecord
from osbert.inference.label_settings import GivenLabels, LabelNames, NamingOptions, read_labels
from osbert.inference.model import Text, require_finite_scores
from osbert.tasks import Prediction, Record, Task

if TYPE_CHECKING:
    from osbert.inference.model import LoadedModel


class TaskLabelPredictor(LabelPredictor):
    """Predicts by a task that `Task.for_labels` makes of the model's own, for all texts or for the labels of each."""

    subject = "types"

    def __init__(
        self, engine: LoadedModel, labels: LabelNames, options: NamingOptions, *, tokens: int = TOKENS
    ) -> None:
        """Ask for `labels`. Raises UserError for options of classes, and labels that the model reads alike."""
        if options.template or options.calibrate:
            raise UserError(
                f"{engine.folder} reads names with the text, without a sentence around them and without a share of the "
                "probability for each. Remove --template and --calibrate.",
                code="options-exclude-each-other",
            )
        self.engine, self.labels, self.options, self.tokens = engine, labels, options, tokens
        self.folder, self.tokenizer, self.packer = engine.folder, engine.tokenizer, engine.packer
        self.calibrates, self._weights = False, None
        self._tasks: dict[LabelNames, Task] = {}
        self.fine_tuned = self.task = self._task(labels)
        problems = Problems(heading="These labels cannot be predicted by name")
        self.check(labels, "labels", problems)
        problems.stop_if_any()

    def check(self, labels: LabelNames, where: str, problems: Problems) -> None:
        """Add labels that the model reads alike to `problems`."""
        self._check_texts({label: label.text for label in labels}, where, problems)

    def ask_rows(self) -> None:
        """Keep the task: its results have the same fields for all labels."""

    def encode(self, record: Record) -> list[Example]:
        """Return the sequences of a text with its labels."""
        return self._task(self._candidates(record)).encode(_plain(record), self.packer)

    def _outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        outputs = self.engine.backend.outputs(self.task, examples, tokens=self.tokens)
        require_finite_scores(outputs, self.engine.folder)
        return outputs

    def _decode(self, outputs: Sequence[Any], record: Record, examples: Sequence[Example]) -> Prediction:
        return self._task(self._candidates(record)).decode(outputs, _plain(record), examples)

    def _describe(self) -> str:
        """Describe how the model is asked, and how often for a text."""
        way = "read with the text; one span may stand within another" if self.options.multi else "read with the text"
        if not self.labels:
            return way
        passes = len(self.fine_tuned.encode(self.fine_tuned.record_of(["a"]), self.packer))
        return f"{way}, in {passes:,} passes through the model" if passes > 1 else way

    def _task(self, labels: LabelNames) -> Task:
        if labels not in self._tasks:
            assert self.engine.task is not None
            task = self.engine.task.for_labels(labels, several=self.options.multi)
            assert task is not None
            if len(self._tasks) >= 256:
                self._tasks.clear()
            self._tasks[labels] = task
        return self._tasks[labels]


def _plain(record: Record) -> Record:
    """Return a record as its task reads it."""
    return record.record if isinstance(record, CandidateRecord) and record.record else record


def label_predictor(
    engine: LoadedModel, labels: LabelNames, options: NamingOptions, *, tokens: int = TOKENS
) -> LabelPredictor:
    """Return what predicts labels by name: with a task that reads them with the text, or as a LabelPredictor does."""
    if engine.task is not None and engine.task.for_labels(labels) is not None:
        return TaskLabelPredictor(engine, labels, options, tokens=tokens)
    return LabelPredictor(engine, labels, options, tokens=tokens)


def predict_names(
    engine: LoadedModel,
    texts: Iterator[Text] | Sequence[Text],
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
        return label_predictor(engine, names, options, tokens=tokens).predict(texts)
    candidates = [read_labels(row, where=f"labels[{index}]") for index, row in enumerate(given)]
    if isinstance(texts, Iterator) or len(texts) != len(candidates):
        count = "an iterator" if isinstance(texts, Iterator) else f"{len(texts):,}"
        raise UserError(
            f"labels has {len(candidates):,} lists, but texts is {count}: give one list of names for all texts, or one "
            "for each text of a list.",
            code="wrong-number-of-values",
        )
    return label_predictor(engine, (), options, tokens=tokens).predict_candidates(texts, candidates)
