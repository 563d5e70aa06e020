"""Questions in SQuAD's form: JSON, with every answer sought where it really stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from osbert.data.table_format import decoding_error, open_text, plain_suffix
from osbert.errors import Problems, UserError
from osbert.tasks.spans import Gold, Question

_NEAR = 40
"""Characters of an answer that a message shows."""


def read_json(path: Path, *, encoding: str = "") -> Any:
    """Return the SQuAD object in a file, or None when the file is no single JSON object with "data".

    Raises UserError at bytes that are no text, and where the JSON of such an object breaks off.
    """
    if plain_suffix(path) != ".json":
        return None
    encoding = encoding or "utf-8-sig"
    try:
        with open_text(path, encoding) as file:
            text = file.read()
        found = json.loads(text)
    except UnicodeDecodeError as error:
        raise decoding_error(path, encoding) from error
    except json.JSONDecodeError as error:
        if '"paragraphs"' not in text:
            return None  # JSON lines, as other tables
        place = f"{path}, line {error.lineno}, character {error.colno}"
        raise UserError(f"{place}: not JSON ({error.msg}). Is the file whole?") from error
    if isinstance(found, list) and found and isinstance(found[0], dict) and "context_text" in found[0]:
        raise UserError(f"{path} is CMRC 2018 in its first form; osbert reads the release in SQuAD's form.")
    return found if isinstance(found, dict) and "data" in found else None


def questions(content: Mapping[str, Any], path: Path, problems: Problems) -> Iterator[Question]:
    """Yield the questions of a SQuAD object in their order; what is not of its form is noted in `problems`.

    A question without "answers" is not labelled; one with none, or that "is_impossible", has no answer.
    """
    count = 0
    for place, entry in _items(content, "data", "", path, problems):
        for where, paragraph in _items(entry, "paragraphs", place, path, problems):
            text = _text(paragraph, "context", where, path, problems)
            for spot, asked in _items(paragraph, "qas", where, path, problems):
                question = _text(asked, "question", spot, path, problems)
                count += 1
                if text is None or question is None:
                    continue
                record = Question(
                    number=0,
                    texts=(question, text),
                    path=str(path),
                    where=spot,
                    key=str(asked.get("id", count - 1)),
                )
                try:
                    yield with_answers(record, asked)
                except ValueError as error:
                    problems.add(f"{record.place}: {error}.")
    if not count and not problems.count:
        problems.add(f"{path}: there are no questions in it.")


def with_answers(record: Question, asked: Mapping[str, Any]) -> Question:
    """Return a question with its answers as a SQuAD file tells them; raises ValueError, saying why, if it cannot."""
    if "answers" not in asked and "is_impossible" not in asked:
        return record
    if asked.get("is_impossible"):
        return _labelled(record, ())
    answers = asked.get("answers") or []
    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
        raise ValueError("'answers' is no list of objects with 'text' and 'answer_start'")
    told = []
    for answer in answers:
        text, start = answer.get("text"), answer.get("answer_start", -1)
        if not isinstance(text, str) or not isinstance(start, int):
            raise ValueError(f"an answer has the text {text!r} at {start!r}; wanted are a text and a whole number")
        told.append(Gold(text, start))
    return located(record, tuple(told))


def located(record: Question, told: tuple[Gold, ...]) -> Question:
    """Return a question with answers whose starts are right, and a remark on those that were wrong.

    An answer that does not stand where it is said to is sought where it stands nearest, whatever its spaces and case;
    if it stands nowhere, its start is -1.
    """
    paragraph = record.texts[1]
    answers, remarks = [], []
    for text, start in told:
        if text and start >= 0 and paragraph.startswith(text, start):
            answers.append(Gold(text, start))
            continue
        found = _nearest(paragraph, text, start) if text.strip() else None
        answers.append(found or Gold(text, -1))
        shown = text if len(text) <= _NEAR else f"{text[:_NEAR]}..."
        if found is None:
            remarks.append(f"the answer '{shown}' does not stand in the paragraph: it cannot be learnt from")
        else:
            remarks.append(f"the answer '{shown}' does not stand at {start}; taken from {found.start}, the nearest")
    return _labelled(record, tuple(answers), "; ".join(dict.fromkeys(remarks)))


def _labelled(record: Question, answers: tuple[Gold, ...], remark: str = "") -> Question:
    return replace(record, label=answers, remark=remark)


def _nearest(paragraph: str, text: str, start: int) -> Gold | None:
    """Return the occurrence of a text that begins nearest to `start`, with the text as it stands there."""
    exactly = re.compile(re.escape(text))
    loosely = re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)
    for pattern in (exactly, loosely):
        matches = list(pattern.finditer(paragraph))
        if matches:
            nearest = min(matches, key=lambda match: abs(match.start() - start))
            return Gold(nearest[0], nearest.start())
    return None


def _items(
    owner: Mapping[str, Any], name: str, place: str, path: Path, problems: Problems
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a list with their places, such as "data[3].paragraphs[0]"."""
    where = f"{place}.{name}" if place else name
    items = owner.get(name)
    if not isinstance(items, list):
        problems.add(f"{path}, {where}: there is no such list; is it a file in SQuAD's form?")
        return
    for number, item in enumerate(items):
        if isinstance(item, dict):
            yield f"{where}[{number}]", item
        else:
            problems.add(f"{path}, {where}[{number}]: {str(item)[:_NEAR]!r} is no object.")


def _text(owner: Mapping[str, Any], name: str, place: str, path: Path, problems: Problems) -> str | None:
    """Return a text that must be there, None and a problem when it is not, or is empty."""
    text = owner.get(name)
    if isinstance(text, str) and text.strip():
        return text
    said = "is empty" if text in ("", None) or isinstance(text, str) else f"is no text but {text!r}"
    problems.add(f"{path}, {place}: the {name} {said}. Mend or remove it.")
    return None
