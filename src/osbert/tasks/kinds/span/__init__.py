"""span: the answer to a question as a span of a paragraph, or that there is none (SQuAD, sections 4.2 and 4.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example, Target
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.reading.splits import find_named
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Description, Inputs, Prediction, Record, Source
from osbert.tasks import Task as Task
from osbert.tasks.edges import Edge, ExplainedScore
from osbert.tasks.features import FeatureTask
from osbert.tasks.kinds.span.files import (
    QuestionColumns,
    SquadFiles,
    choose,
    hold_out_paragraphs,
    question_of,
    questions,
)
from osbert.tasks.kinds.span.questions import NOTHING, AnswerPrediction, Gold, Question
from osbert.tasks.kinds.span.scoring import Scores, Way, is_chinese
from osbert.tasks.kinds.span.windows import Cutter, Decoder, QuestionWindow, answer_score, covering, encoding
from osbert.tasks.record import SIDES, Probability, RecordOutcome, TextMark
from osbert.tasks.tables import TableDescription, TableSource, TableTask
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head
    from osbert.tasks.calibration import Calibration

SHOWN = ("text", "start", "end", "probability")
HAS = {True: "has an answer", False: "has no answer"}
"""The fields of a candidate that a client gets."""


class SpanSource(TableSource):
    """Reads files in SQuAD's form, and tables with questions, paragraphs and answers."""

    task: Span
    indivisible: ClassVar[str] = "the questions on a paragraph stay together, and there is one paragraph"

    @cached_property
    def squad(self) -> SquadFiles:
        """The reader of files in SQuAD's form."""
        return SquadFiles(self.task.encoding)

    def find_files(self, data: Path) -> Mapping[str, Path]:
        return find_named(data)

    @property
    def named(self) -> tuple[str, ...]:
        task = self.task
        return (task.question, task.paragraph, task.answer, task.answer_start)

    def columns(self, table: Table, *, labelled: bool) -> QuestionColumns:
        task = self.task
        user_columns = QuestionColumns(
            question=task.question, paragraph=task.paragraph, label=task.answer, start=task.answer_start
        )
        return choose(table.columns, user_columns=user_columns, path=table.called, labelled=labelled)

    def record(self, row: Row, columns: QuestionColumns, *, path: str = "") -> Question:
        return question_of(row, columns, path=path)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        content = self.squad.content(origin)
        if isinstance(origin, Table) or content is None:
            yield from super().read(origin, problems, labelled=labelled)
        else:
            yield from questions(content, origin, problems)

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which questions are held out: those with known answers of a fraction of the paragraphs."""
        labelled = np.array([record.label is not None for record in records], np.bool_)
        return labelled & hold_out_paragraphs(records, self.task.held_out)

    def findings(self) -> list[str]:
        files = self.files()
        lines = [self._form(origin) for split, origin in files.items() if split != "test"]
        if "dev" not in files:
            portion = f"{100 * self.task.held_out:g}% of the paragraphs"
            lines.append(f"no file for development: the questions on {portion} are held out")
        return lines

    def inputs(self, data: Origin) -> Inputs:
        content = self.squad.content(data)
        if isinstance(data, Table) or content is None:
            key = self.columns(self.open(data), labelled=False).key
            return dataclasses.replace(super().inputs(data), key=key or "id")

        def rows(problems: Problems) -> Iterator[tuple[Row, Record | None]]:
            for number, record in enumerate(questions(content, data, problems), 1):
                yield Row(line=number, values={"id": record.key, "question": record.texts[0]}), record

        return Inputs(describe=self._form(data), columns=("id", "question"), rows=rows, lines=True, key="id")

    def _form(self, origin: Origin) -> str:
        if self.squad.has(origin):
            return f"{origin}: questions in SQuAD's form"
        table = self.open(origin)
        return f"{table.describe()}; {self.columns(table, labelled=False).describe()}"


class QuestionDescription(TableDescription):
    """Describes questions about paragraphs."""

    task: Span

    def describe_split(self, records: Sequence[Record]) -> str:
        without, unknown = (sum(record.label == label for record in records) for label in ((), None))
        paragraphs = len({record.texts[1] for record in records})
        remark = f", {without:,} without an answer" if without else ""
        remark += f", {unknown:,} of unknown answer" if unknown else ""
        return f"{format_count(len(records), 'question')} on {format_count(paragraphs, 'paragraph')}{remark}"

    def limit(self, packer: Packer) -> str:
        """Describe how much of a question is used; paragraphs are used completely."""
        return f"{self.task.cutter(packer).most} pieces of a question"

    def cuts(self, records: Sequence[Record], packer: Packer) -> str:
        cutter = self.task.cutter(packer)
        long = sum(cutter.question_pieces(record.texts[0])[1] > 0 for record in records)
        if not long:
            return ""
        size, remedy = f"{cutter.most} pieces", "--question-length N changes this"
        if cutter.most < self.task.question_length:
            size, remedy = f"{size}, half of a sequence", self.longer.removesuffix(".")
        return f"{long:,} of {len(records):,} questions are longer than {size}; their ends are not read. {remedy}."


@dataclass(frozen=True, kw_only=True)
class Span(FeatureTask, TableTask):
    """Questions on paragraphs. Reads files in SQuAD's form (1.1 and 2.0, CMRC 2018, XQuAD), CSV and JSON lines.

    The question comes first. A paragraph that does not fit after it is split into overlapping windows, which are
    encoded when a step needs them.
    """

    form = "span"
    edge = Edge(kind="span", call="answer")
    published_outputs = 2
    reader: ClassVar[type[Source]] = SpanSource
    describer: ClassVar[type[Description]] = QuestionDescription
    lazy: ClassVar[bool] = True
    row_score: ClassVar[str] = "F1"
    sample: ClassVar[str] = '"a question" "a paragraph that answers it"'

    length: int = 384
    """Most tokens in a window, question and specials included; at most the model's limit."""
    stride: int = 128
    """Distance between the starts of two windows, in pieces of the paragraph."""
    question_length: int = 64
    """Most pieces of a question; further ones are cut off."""
    answer_length: int = 30
    """Most pieces of a predicted answer."""
    candidates: int = 20
    """Number of starts and of ends of a window that are combined, and of answers that are listed with probabilities."""
    unanswerable: Literal["auto", "yes", "no"] = "auto"
    """Whether a paragraph may have no answer; auto is yes if a training question has none."""
    threshold: float = 0.0
    """Least margin of the best answer over "no answer"; tuned for F1 on the development questions."""
    scoring: Literal["auto", "words", "characters"] = "auto"
    """Unit of the scores: words as in SQuAD, or characters as in CMRC 2018; auto is characters for Chinese answers."""
    question: str = ""
    """The column of a table with the question; detected by its name if not given."""
    paragraph: str = ""
    """The column with the paragraph; detected by its name if not given."""
    answer: str = ""
    """The column with the answer, empty if there is none; detected by its name if not given."""
    answer_start: str = ""
    """The column with the character at which the answer begins; without it, the answer's first occurrence counts."""

    request_fields: ClassVar[tuple[str, ...]] = ("question", "paragraph")
    criterion: ClassVar[str] = "f1"
    """In training with unanswerable questions at the best threshold for the questions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stride", "question_length", "answer_length", "candidates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task with `unanswerable` and `scoring` resolved from the records.

        Raises UserError if no question has an answer to learn from.
        """
        answers = [gold.text for record in records if record.label for gold in record.label[:1]]
        if all(self.lacks(record) for record in records if record.label):
            raise UserError(
                "none of the training questions has an answer that occurs in its paragraph. Add some.",
                code="nothing-to-learn",
            )
        none = any(record.label == () for record in records)
        return dataclasses.replace(
            self,
            unanswerable=("yes" if none else "no") if self.unanswerable == "auto" else self.unanswerable,
            scoring=("characters" if is_chinese(answers) else "words") if self.scoring == "auto" else self.scoring,
        )

    def lacks(self, record: Record) -> str:
        """Describe what is missing for training; "" if an answer is in the paragraph, or known not to exist."""
        known = record.label is not None and (not record.label or any(gold.start >= 0 for gold in record.label))
        return "" if known else "answer that occurs in the paragraph"

    # Plain input.

    def record_of(self, texts: Sequence[str]) -> Question:
        if len(texts) != 2:
            raise UserError(
                f"The run answers questions: give a question and its paragraph, not {len(texts)} text(s).",
                code="wrong-number-of-texts",
            )
        return Question(number=0, texts=tuple(texts))

    # The model.

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the windows. The target is the start (0) and the end (1) of the first answer that stands in the
        paragraph, both at [CLS] in windows without it.

        Raises UserError unless the record has two texts, a question and a paragraph.
        """
        if len(record.texts) != 2:
            raise UserError(
                f"{record.place}: {self.name} reads a question and a paragraph, not {len(record.texts)} text(s).",
                code="wrong-number-of-texts",
            )
        cutter = self.cutter(packer)
        # Each with the index of its first piece in the paragraph.
        windows = cutter.windows(*record.texts, record=record.number)
        # Windows without targets: for prediction, and for answers that cannot be located.
        if self.lacks(record):
            return [window for _, window in windows]
        return [self._with_target(window, begin, record, packer) for begin, window in windows]

    def head(self, backbone: Backbone) -> Head:
        if self.features != "none":
            return self.head_on_features(backbone)
        from osbert.models.heads.grouped import SpanHead

        return SpanHead(backbone, target=self.name)

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> AnswerPrediction:
        """Return the most probable span over all windows, or no answer if its margin does not exceed the threshold."""
        decoder = Decoder(
            most=self.candidates,
            longest=self.answer_length,
            unanswerable=self.unanswerable == "yes",
            threshold=self.threshold,
        )
        windows = [example for example in examples if isinstance(example, QuestionWindow)]
        return decoder.answer(record.texts[1], windows, outputs)

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the score of the answer: the logits of its start and its end, or those of "no answer"."""
        assert isinstance(prediction, AnswerPrediction)
        return [answer_score(prediction.chosen, examples, label)]

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return exact match and F1; with unanswerable questions also for each kind, and at other thresholds.

        These are the best threshold of each score, and 0 ("untuned").
        """
        scores = Scores(predictions, records, way=self._way)
        return scores.means() | (scores.best() | scores.means_at_zero() if self.unanswerable == "yes" else {})

    def tune(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        if self.unanswerable != "yes":
            return self, None
        best = Scores(predictions, records, way=self._way).best()
        return dataclasses.replace(self, threshold=best["best_f1_threshold"]), None

    def names(self, record: Record) -> tuple[str, ...]:
        """Return whether a question has an answer, as a name; () if every question has one."""
        return () if self.unanswerable != "yes" or record.label is None else (HAS[bool(record.label)],)

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the F1 of an answer, with the true and the given answer marked; right if it matches exactly."""
        assert isinstance(prediction, AnswerPrediction)
        scores = Scores([prediction], [record], way=self._way).means()
        gold = record.label[0] if record.label else Gold(NOTHING, -1)
        answer = prediction.chosen
        ranges = ((gold.start, gold.start + len(gold.text)), (answer.start, answer.end))
        names = self.names(record)
        return RecordOutcome(
            truth=gold.text,
            guess=answer.text or NOTHING,
            score=scores["f1"],
            right=scores["exact"] == 1,
            error=1 - scores["f1"],
            confidence=answer.probability,
            pairs=((names[0], HAS[answer.start >= 0]),) if names else (),
            beliefs=((answer.probability, scores["exact"] == 1),),
            marks=tuple(
                TextMark(start=start, end=end, of=of, text=1) for of, (start, end) in zip(SIDES, ranges) if start >= 0
            ),
        )

    def at_best(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[Prediction]:
        threshold = self.tune(predictions, records)[0].threshold
        return [
            prediction.apply_threshold(threshold) if isinstance(prediction, AnswerPrediction) else prediction
            for prediction in predictions
        ]

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        names = ("prediction", "probability", "start", "end", "truncated")
        if not isinstance(prediction, AnswerPrediction):
            return dict.fromkeys(names, "")
        answer = prediction.chosen
        probability = Probability(answer.probability)
        return dict(zip(names, (prediction.value, probability, answer.start, answer.end, prediction.truncated)))

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        assert isinstance(prediction, AnswerPrediction)
        listed = [
            {name: getattr(candidate, name) for name in SHOWN}
            for candidate in (prediction.chosen, *prediction.candidates)
        ]
        return {"answer": listed[0] if prediction.chosen.start >= 0 else None, "n_best": listed[1:]}

    def cutter(self, packer: Packer) -> Cutter:
        """Return what cuts questions and paragraphs into windows."""
        return Cutter(packer=packer, question=self.question_length, stride=self.stride)

    @property
    def _way(self) -> Way:
        return "characters" if self.scoring == "characters" else "words"

    def _with_target(self, window: QuestionWindow, begin: int, record: Record, packer: Packer) -> QuestionWindow:
        """Return the window, which begins with the paragraph's piece `begin`, with its target."""
        tokens = (0, 0)
        if record.label:
            text, start = next(gold for gold in record.label if gold.start >= 0)
            # The first and the last piece of the answer, both in the whole paragraph.
            piece_range = covering(encoding(packer.tokenizer, record.texts[1]), start, start + len(text))
            if piece_range is None:  # nothing but signs that have no pieces: there is nothing to point to
                return window
            # Only windows that contain the whole answer point to it; all others point to the first token.
            if begin <= piece_range[0] and piece_range[1] < begin + len(window.starts):
                tokens = (window.first + piece_range[0] - begin, window.first + piece_range[1] - begin)
        # Label 0 at the start, label 1 at the end: the columns of SpanHead.
        target = Target(labels=np.array([0, 1]), index=np.array(tokens))
        return dataclasses.replace(window, targets={self.name: target})
