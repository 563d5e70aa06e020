"""Questions in files: in SQuAD's form (JSON), with corrected positions of answers, and in tables."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np

from osbert import guarded
from osbert.data.example import Booleans
from osbert.errors import Problems, UserError, not_json
from osbert.files import file_stamp
from osbert.reading.columns import ROLES, Header
from osbert.reading.form import decoding_error, open_text, plain_suffix
from osbert.reading.splits import hold_out
from osbert.reading.table import Origin, Row
from osbert.tasks import Record
from osbert.tasks.kinds.span.questions import Gold, Question
from osbert.tasks.tables import parse_cell, require_cells, row_texts
from osbert.tasks.tables.classes import parse_literal
from osbert.terminal import one_line
from osbert.text.normalize import is_blank
from osbert.text.words import ranges

AnswerStart = tuple[str, int | None]
"""An answer in a file: its text, and its first character, None if the file does not give it."""
SMALL, TIMES = 1 << 26, 32
"""Most characters of a file that is read completely, and most per byte of it if that is more."""
_ARRAY = re.compile(r"\barray\((\[.*?\])(?:, *dtype=\w+)?\)", re.DOTALL)
"""A list as numpy writes it into a cell: array(['Ann'], dtype=object)."""
_NEAR = 40
"""Characters of an answer that a message shows."""


class SquadFiles:
    """Reads files in SQuAD's form. Whether a file has it is found once, and again if the file has changed."""

    def __init__(self, encoding: str) -> None:
        """Read files in this encoding; "" to detect it."""
        self.encoding = encoding
        self._known: dict[tuple[Path, Any], bool] = {}

    def content(self, origin: Origin) -> Any:
        """Return the SQuAD object of a file; None for a table."""
        if not isinstance(origin, Path):
            return None
        stamp = file_stamp(origin)
        content = read_json(origin, encoding=self.encoding)
        self._known[origin, stamp] = content is not None
        return content

    def has(self, origin: Origin) -> bool:
        """Return whether a file is in SQuAD's form."""
        if not isinstance(origin, Path):
            return False
        known = self._known.get((origin, file_stamp(origin)))
        return self.content(origin) is not None if known is None else known


def hold_out_paragraphs(records: Sequence[Record], fraction: float) -> Booleans:
    """Return which records (n,) are held out: all on a fraction of the paragraphs, which are their last texts."""
    # By paragraph, not by row: questions on one paragraph share most of their text.
    paragraphs = list(dict.fromkeys(record.texts[-1] for record in records))
    out = dict(zip(paragraphs, hold_out(paragraphs, fraction, stratified=False).tolist()))
    return np.array([out[record.texts[-1]] for record in records], np.bool_)


def read_json(path: Path, *, encoding: str = "") -> Any:
    """Return the SQuAD object of a file, None if the file is not a single JSON object with "data".

    Raises UserError when there is no such file or encoding, at bytes that are no text, and where the JSON of such an
    object breaks off.
    """
    if plain_suffix(path) != ".json":
        return None
    if not path.is_file():
        raise UserError(f"{path}: no such file.", code="missing-file")
    try:
        with open_text(path, encoding) as file:
            encoding = file.encoding
            most = max(SMALL, TIMES * path.stat().st_size)
            text = file.read(most + 1).removeprefix("\ufeff")  # some codecs, such as utf-16-le, keep the mark
        if len(text) > most:
            raise UserError(
                f"{path}: unpacked it has more than {most:,} characters, {TIMES} times its size.", code="too-large"
            )
        content = guarded.parse_json(text)
    except UnicodeError as error:
        raise decoding_error(path, encoding) from error
    except JSONDecodeError as error:
        if '"paragraphs"' not in text:
            return None  # JSON lines, as other tables
        location = f"{path}, line {error.lineno}, character {error.colno}"
        raise UserError(f"{location}: not JSON ({not_json(error)}). Is the file whole?", code="wrong-format") from error
    if isinstance(content, list) and content and isinstance(content[0], dict) and "context_text" in content[0]:
        raise UserError(
            f"{path} is CMRC 2018 in its first form; osbert reads the release in SQuAD's form.", code="wrong-format"
        )
    return content if isinstance(content, dict) and "data" in content else None


def questions(content: Mapping[str, Any], path: Path, problems: Problems) -> Iterator[Question]:
    """Yield the questions of a SQuAD object in order. Objects of another form are reported to `problems`.

    A question with missing or null "answers" is not labelled. One with only empty answers, or that "is_impossible",
    has no answer.
    """
    count = 0
    for entry_path, entry in _items(content, "data", "", path, problems):
        for where, paragraph in _items(entry, "paragraphs", entry_path, path, problems):
            text = _text(paragraph, "context", where, path, problems)
            for spot, qa_entry in _items(paragraph, "qas", where, path, problems):
                question = _text(qa_entry, "question", spot, path, problems)
                count += 1
                if text is None or question is None:
                    continue
                record = Question(
                    number=0, texts=(question, text), path=str(path), where=spot, key=str(qa_entry.get("id", count - 1))
                )
                try:
                    yield with_answers(record, qa_entry)
                except ValueError as error:
                    problems.add(f"{record.place}: {one_line(str(error))}.", code="unusable-row")
    if not count and not problems.count:
        problems.add(
            f'{path}: there are no questions in it. Its "data" wants "paragraphs", and they want "qas".', code="no-data"
        )


def with_answers(record: Question, qa_entry: Mapping[str, Any]) -> Question:
    """Return a question with its answers from a SQuAD file. Raises ValueError with the reason if they are invalid."""
    if qa_entry.get("is_impossible"):
        return replace(record, label=())
    answers = qa_entry.get("answers")
    if answers is None:
        return record
    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
        raise ValueError("'answers' is no list of objects with 'text' and 'answer_start'")
    pairs = []
    for answer in answers:
        text, start = answer.get("text"), answer.get("answer_start")
        if not isinstance(text, str) or not isinstance(start, int | None):
            raise ValueError(f"an answer has the text {text!r} at {start!r}; expected a text and a whole number")
        pairs.append((text, start))
    return locate_answers(record, pairs)


def locate_answers(record: Question, pairs: Sequence[AnswerStart]) -> Question:
    """Return a question with corrected answer starts, and a remark on the corrections.

    An answer whose start is wrong moves to its nearest occurrence, ignoring spaces, case and normal forms; one without
    a start, to the first that cuts no word, as "5" in "1995" does, if there is one. If the paragraph does not contain
    it, its start is -1. Empty answers are dropped.
    """
    visible_answers = [(text, start) for text, start in pairs if not is_blank(text)]
    # An empty text at -1 or 0 is how a file says that there is no answer: nothing is amiss in that.
    remarks = [
        f"an answer{'' if start is None else f' at {start}'} is empty: it is skipped"
        for text, start in pairs
        if is_blank(text) and (visible_answers or (start or 0) > 0)
    ]
    answers = []
    for text, start in visible_answers:
        answer, remark = _locate_answer(record.texts[1], text, start)
        answers.append(answer)
        remarks += [remark] if remark else []
    return replace(record, label=tuple(answers), remark="; ".join(dict.fromkeys(remarks)))


def _locate_answer(paragraph: str, text: str, start: int | None) -> tuple[Gold, str]:
    """Return an answer with its actual start, and a remark, "" if the file was right."""
    if start is not None and start >= 0 and paragraph.startswith(text, start):
        return Gold(text, start), ""
    occurrence = _nearest(paragraph, text, start)
    excerpt = text if len(text) <= _NEAR else f"{text[:_NEAR]}..."
    if occurrence is None:
        return Gold(text, -1), f"the answer '{excerpt}' does not occur in the paragraph: it cannot be used for training"
    if start is not None:
        return (
            occurrence,
            f"the answer '{excerpt}' does not start at {start}; the nearest occurrence, at {occurrence.start}, is used",
        )
    plain = ["".join(words.split()).casefold() for words in (text, occurrence.text)]
    form = "with other spaces or case" if plain[0] == plain[1] else "in another Unicode normal form"
    changed = f"the answer '{excerpt}' occurs {form}; the occurrence at {occurrence.start} is used"
    return occurrence, "" if occurrence.text == text else changed


def _nearest(paragraph: str, text: str, start: int | None) -> Gold | None:
    """Return the occurrence of a text nearest to `start`, spelled as in the paragraph; None if there is none."""
    exactly = re.compile(re.escape(text))
    # Any amount of space between words, in any case, with accents composed (NFC) or not (NFD).
    loosely = re.compile(r"\s+".join(map(_in_any_form, text.split())), re.IGNORECASE)
    for pattern in (exactly, loosely):
        matches = list(pattern.finditer(paragraph))
        if (start or -1) < 0 and len(matches) > 1:  # None, and what files write in its place
            starts, ends = map(set, zip(*ranges(paragraph, "words")))
            matches = [match for match in matches if match.start() in starts and match.end() in ends] or matches
        if matches:
            nearest = min(matches, key=lambda match: abs(match.start() - (start or 0)))
            return Gold(nearest[0], nearest.start())
    return None


def _in_any_form(word: str) -> str:
    """Return a pattern of a word in which each character may be composed or decomposed."""
    characters = [(re.escape(sign), unicodedata.normalize("NFD", sign)) for sign in unicodedata.normalize("NFC", word)]
    return "".join(sign if sign[-1] == apart else f"(?:{sign}|{apart})" for sign, apart in characters)


def _items(
    owner: Mapping[str, Any], name: str, owner_path: str, path: Path, problems: Problems
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a list with their paths, such as "data[3].paragraphs[0]"."""
    where = f"{owner_path}.{name}" if owner_path else name
    items = owner.get(name)
    if not isinstance(items, list):
        problems.add(f"{path}, {where}: there is no such list; is it a file in SQuAD's form?", code="wrong-format")
        return
    for number, item in enumerate(items):
        if isinstance(item, dict):
            yield f"{where}[{number}]", item
        else:
            problems.add(f"{path}, {where}[{number}]: {str(item)[:_NEAR]!r} is no object.", code="wrong-format")


def _text(owner: Mapping[str, Any], name: str, item_path: str, path: Path, problems: Problems) -> str | None:
    """Return a required text; None, and a problem, if it is missing or empty."""
    text = owner.get(name)
    if isinstance(text, str) and text.strip():
        return text
    defect = "is empty" if text in ("", None) or isinstance(text, str) else f"is no text but {text!r}"
    problems.add(f"{path}, {item_path}: the {name} {defect}. Mend or remove it.", code="unusable-row")
    return None


FIELD_ROLES = {
    "question": "question",
    "paragraph": "paragraph",
    "label": "answer",
    "start": "answer start",
    "key": "key",
}
"""The fields of QuestionColumns -> the roles of their columns (`ROLES`)."""
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
    for name, role in FIELD_ROLES.items():
        wanted = getattr(user_columns, name)
        if name in needed:
            header.require(wanted, advice=f" {_advice(name)}")
        column_by_field[name] = header.find(role, wanted)
        if name in needed and not column_by_field[name]:
            raise header.missing(ROLES[role][0], f". {_advice(name)}")
    return QuestionColumns(**column_by_field)


def _advice(name: str) -> str:
    """Return the advice how to name a column, in training and for a trained run."""
    option = OPTIONS[name]
    return f"Give --{option} NAME, or for a run that is trained --columns.{option} NAME."


def question_of(row: Row, columns: QuestionColumns, *, path: str) -> Question:
    """Return the question of a row. Raises ValueError with the reason if the row is unusable.

    The answer's cell may be a text, "" if there is no answer; a list of texts; or, as in Hugging Face's data sets, an
    object {"text": [...], "answer_start": [...]}. With null, which JSON and Parquet distinguish from an empty text, the
    question has no label. A row that "is_impossible" has no answer.
    """
    wanted = [name for name in (columns.question, columns.paragraph, columns.label) if name]
    require_cells(row, wanted)
    record = Question(
        number=0,
        texts=row_texts(row, wanted[:2]),
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
    # As in SQuAD 2.0's own form, what such a row has for answers is merely plausible.
    if row.values.get("is_impossible", "").strip().lower() in ("true", "1"):
        return replace(record, label=())
    # Not labelled, other than "": a question that is known to have no answer.
    if columns.label in row.nulls:
        return record
    answer: Any = row.source.get(columns.label, row.values[columns.label])
    starts: Any = row.source.get(columns.start, row.values.get(columns.start, ""))
    # Answers as in SQuAD, written as JSON in a cell; other texts that begin with a bracket are answers.
    if isinstance(answer, str) and answer.lstrip().startswith(('{"', '["', "[{", "{'", "['")):
        answer = parsed if (parsed := parse_literal(_ARRAY.sub(r"\1", answer.strip()))) is not None else answer
        if isinstance(answer, str) and answer.lstrip().startswith("{'"):
            raise ValueError(f"the answer {answer[:_NEAR]!r} is an object that cannot be read. Write it as JSON")
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
        starts = parsed if (parsed := parse_cell(starts)) is not None else starts
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
