"""squad_answers: the answer to a question on a paragraph, written as a text (T5, Raffel et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from osbert.errors import Problems
from osbert.reading.table import Origin, Row
from osbert.tasks import Inputs, Prediction, Record, Source
from osbert.tasks.kinds.span.files import questions
from osbert.tasks.kinds.span.scoring import best, exact_words, f1_words
from osbert.tasks.record import RecordOutcome
from osbert_lab.data_sets.squad_questions import QuestionWritingSource
from osbert_lab.writing.generate import Generate as Generate
from osbert_lab.writing.generate import references


class AnswerWritingSource(QuestionWritingSource):
    """Reads files in SQuAD's form, and tables with questions, contexts and answers."""

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        """Yield each question with its paragraph and its distinct answers; skip questions without an answer."""
        content = self.squad.content(origin)
        if content is None:
            yield from super().read(origin, problems, labelled=labelled)
            return
        assert isinstance(origin, Path)
        for record in questions(content, origin, problems):
            answers = tuple(dict.fromkeys(gold.text for gold in record.label or ()))
            if answers or (record.label is None and not labelled):
                yield Record(number=0, texts=record.texts, label=answers or None, path=str(origin))

    def inputs(self, data: Origin) -> Inputs:
        """Return the questions of a file in SQuAD's form by their ids, or a table."""
        content = self.squad.content(data)
        if content is None:
            return super().inputs(data)
        assert isinstance(data, Path)

        def rows(problems: Problems) -> Iterator[tuple[Row, Record | None]]:
            for number, record in enumerate(questions(content, data, problems), 1):
                yield Row(line=number, values={"id": record.key, "question": record.texts[0]}), record

        form = f"{data}: questions in SQuAD's form"
        return Inputs(describe=form, columns=("id", "question"), rows=rows, lines=True, key="id")


@dataclass(frozen=True, kw_only=True)
class SquadAnswers(Generate):
    """A folder with train-v1.1.json and dev-v1.1.json, or one such file; or tables: question, context and answer.

    The source is `question: ... context: ...`, the target the answer. Scores are those of SQuAD: exact match and F1
    over words, each of the best of the true answers. Questions without an answer are skipped.
    """

    reader: ClassVar[type[Source]] = AnswerWritingSource

    text: tuple[str, ...] = ("question", "context")
    target: str = "answer"

    @property
    def criterion(self) -> str:
        """Return F1, SQuAD's score."""
        return "f1"

    @property
    def row_score(self) -> str:  # type: ignore[override]
        """Return the name of the score of single rows."""
        return "F1"

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the means of exact match and F1 of evaluate-v1.1.py, each 0 to 1."""
        pairs = [(str(prediction.value), references(record)) for prediction, record in zip(predictions, records)]
        return {
            name: sum(best(measure, guess, true) for guess, true in pairs) / len(pairs)
            for name, measure in (("exact", exact_words), ("f1", f1_words))
        }

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the F1 of an answer; it is right if it matches a true one exactly."""
        scores = self.metrics([prediction], [record])
        return RecordOutcome(
            truth=" / ".join(references(record)),
            guess=str(prediction.value),
            score=scores["f1"],
            right=scores["exact"] == 1,
            error=1 - scores["f1"],
        )
