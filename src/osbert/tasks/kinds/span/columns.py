"""Questions in a table: the columns of questions, paragraphs and answers, and the records of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

from osbert.guarded import parse_json
from osbert.reading.columns import Header
from osbert.reading.table import Row
from osbert.tasks.kinds.span.files import locate_answers, with_answers
from osbert.tasks.kinds.span.questions import Question

USUAL = {
    "question": ("question", "query"),
    "paragraph": ("context", "paragraph", "passage", "text", "document", "doc"),
    "label": ("answers", "answer", "answer_text"),
    "start": ("answer_start", "start"),
    "key": ("id", "qid", "question_id"),
}
"""The usual names of the columns; the first one that a table has is used."""
OPTIONS = {"question": "question", "paragraph": "paragraph", "label": "answer", "start": "answer-start"}
"""The command-line options that name the columns; for trained runs it is --columns."""


@dataclass(frozen=True, kw_only=True)
class QuestionColumns:
    """The columns in use; `label` holds the answer, or a list of answers. "" for an absent column."""

    question: str = ""
    paragraph: str = ""
    label: str = ""
    start: str = ""
    key: str = ""

    def describe(self, *, labelled: bool = True) -> str:
        """Describe the columns. Without `labelled`, mention that the answer is not read."""
        starts = f", which begin at '{self.start}'" if self.start else ""
        answers = f"answers from '{self.label}'{starts}" if labelled else f"the answers in '{self.label}' are not read"
        labels = answers if self.label else "no answers"
        return f"questions from '{self.question}', paragraphs from '{self.paragraph}', {labels}"


def choose(columns: Sequence[str], *, user_columns: QuestionColumns, path: str, labelled: bool) -> QuestionColumns:
    """Return the columns to use: the given ones (`user_columns`), else those with usual names.

    Raises UserError listing the columns if a required one is absent. Without `labelled` the answer is not required.
    """
    header = Header(columns, path)
    needed = ("question", "paragraph", *(("label",) if labelled else ()))
    column_by_field = {}
    for name, usual in USUAL.items():
        wanted = getattr(user_columns, name)
        if name in needed:
            header.require(wanted, advice=f" {_advice(name)}")
        column_by_field[name] = wanted if wanted in columns else header.first(usual)
        if name in needed and not column_by_field[name]:
            raise header.missing(usual[0], f". {_advice(name)}")
    return QuestionColumns(**column_by_field)


def _advice(name: str) -> str:
    """Return the advice how to name a column, in training and for a trained run."""
    option = OPTIONS[name]
    return f"Give --{option} NAME, or for a run that is trained --columns.{option} NAME."


def question_of(row: Row, columns: QuestionColumns, *, path: str) -> Question:
    """Return the question of a row. Raises ValueError with the reason if the row is unusable.

    The answer's cell may be a text, "" if there is no answer; a list of texts; or, as in Hugging Face's data sets, an
    object {"text": [...], "answer_start": [...]}. With null, which JSON and Parquet distinguish from an empty text, the
    question has no label.
    """
    wanted = [name for name in (columns.question, columns.paragraph, columns.label) if name]
    missing = [name for name in wanted if name not in row.values]
    if missing:
        raise ValueError(f"there is no '{missing[0]}' in it")
    record = Question(
        number=0,
        texts=(row.values[columns.question], row.values[columns.paragraph]),
        path=path,
        line=row.line,
        key=row.values.get(columns.key, "") or str(row.line),
    )
    if not columns.label:
        return record
    # wanted[:2]: question and paragraph. Rows without any text are left to the caller.
    empty = [name for name in wanted[:2] if not row.values[name].strip()]
    if empty and any(text.strip() for text in record.texts):
        raise ValueError(f"the {empty[0]} is empty")
    return _add_answers(record, row, columns)


def _add_answers(record: Question, row: Row, columns: QuestionColumns) -> Question:
    # Not labelled, other than "": a question that is known to have no answer.
    if columns.label in row.nulls:
        return record
    answer: Any = row.source.get(columns.label, row.values[columns.label])
    starts: Any = row.source.get(columns.start, row.values.get(columns.start, ""))
    # Answers as in SQuAD, written as JSON in a cell; other texts that begin with a bracket are answers.
    if isinstance(answer, str) and answer.lstrip().startswith(('{"', '["', "[{")):
        answer = _parse_cell(answer)
    if isinstance(answer, Mapping):
        # Hugging Face's form: {"text": [...], "answer_start": [...]}.
        answer, starts = answer.get("text"), answer.get("answer_start", "")
        if answer is None:
            return record
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        # SQuAD's own form: [{"text": ..., "answer_start": ...}, ...].
        return with_answers(record, {"answers": answer})
    texts = [answer] if isinstance(answer, str) else answer
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the answer {answer!r} is neither a text nor a list of texts")
    if isinstance(starts, str) and starts.lstrip().startswith("["):
        starts = _parse_cell(starts)
    return locate_answers(record, [(text, _number(starts, index)) for index, text in enumerate(texts)])


def _number(starts: Any, index: int) -> int | None:
    """Return the start of the answer at `index`, None if it is not given."""
    if isinstance(starts, list):
        starts = starts[index] if index < len(starts) else None
    if starts is None or starts == "":
        return None
    try:
        number = float(starts)  # 12.0 is how tables write 12 beside empty cells
    except (TypeError, ValueError):
        number = math.nan
    if not number.is_integer():
        raise ValueError(f"the answer's start {starts!r} is not a whole number")
    return int(number)


def _parse_cell(text: str) -> Any:
    try:
        return parse_json(text)
    except JSONDecodeError:
        return text
