"""Choices in a table: the columns of context, choices and label, and the records of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

from osbert.errors import UserError
from osbert.guarded import parse_json
from osbert.reading.columns import Header
from osbert.reading.table import Row
from osbert.tasks.kinds.choose.labels import ChoiceLabel, choice_index
from osbert.tasks.kinds.choose.records import Choices, Counting, names

_CONTEXTS = ("sent1", "ctx", "context", "premise", "question", "stem", "story", "sentence", "text")
_PREFIXES = {"sent1": "sent2"}
"""Name of the context -> name of a column with text before each choice: the beginning of SWAG's endings."""
_LISTS = ("choices", "endings", "options", "candidates", "answers")
_STEMS = ("ending", "choice", "option", "answer", "alternative", "solution", "sol", "randomfifthsentencequiz")
_LABELS = ("label", "answer", "answerkey", "gold", "correct", "answerrightending")
HEADINGS = (*_CONTEXTS, *_LISTS, *_LABELS)
"""A first line that contains one of these is a header."""

_NUMBERED = re.compile(r"(.*?)[ _-]?(\d+|[a-h])", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class ChoiceColumns:
    """The columns in use. The columns of `context` are joined with spaces; `prefix` precedes each choice.

    `choices`: a column for each choice, or one with a list of them (JSON lines). `label`: "" if there is none.
    """

    context: tuple[str, ...]
    choices: tuple[str, ...]
    prefix: str = ""
    label: str = ""

    def describe(self, *, labelled: bool = True) -> str:
        """Describe the columns. Without `labelled`, mention that the label is not read."""
        before = f" behind '{self.prefix}'" if self.prefix else ""
        label = f"label from '{self.label}'" if labelled else f"the labels in '{self.label}' are not read"
        choices = f"choices from {_quote_names(self.choices)}{before}"
        return f"context from {_quote_names(self.context)}, {choices}, {label if self.label else 'no label'}"


def choose(columns: Sequence[str], *, user_columns: ChoiceColumns, path: str, labelled: bool) -> ChoiceColumns:
    """Return the columns to use: the given ones (`user_columns`), else those with usual names; "answer" is a label
    beside choices.

    Raises UserError listing the columns if a given one is absent or none can be detected.
    """
    header = Header(columns, path)
    wanted = [("context", name) for name in user_columns.context] + [("choices", name) for name in user_columns.choices]
    wanted += [("prefix", user_columns.prefix), ("label", user_columns.label if labelled else "")]
    for option, name in wanted:
        header.require(name, option=option)
    choices = user_columns.choices or _choices(header)
    if not choices:
        raise UserError(
            f"{header.listed}; which are the choices? Give --choices NAME,NAME (or one column with a list), or for a "
            "run that is trained --columns.choices NAME,NAME.",
            code="unknown-column",
        )
    # A column such as "answer" may be the choices or the label: the choices come first.
    label = user_columns.label if user_columns.label in columns else header.first(_LABELS, but=choices)
    if labelled and not label:
        raise header.missing("label", ": give --label NAME.")
    context = user_columns.context or _context(header, but=(*choices, label))
    if not context:
        advice = "for a run that is trained --columns.context NAME (or NAME,NAME)."
        raise header.missing("context", f": give --context NAME (or NAME,NAME), or {advice}")
    prefix = user_columns.prefix
    # The prefix is detected only with a detected context: it depends on the name of the context.
    if not (prefix or user_columns.context):
        prefix = header.first([_PREFIXES.get(context[0].strip().lower(), "")])
    return ChoiceColumns(context=context, choices=choices, prefix=prefix, label=label)


def record_of(row: Row, columns: ChoiceColumns, *, counting: Counting, path: str) -> Choices:
    """Return the context and choices of a row. Raises ValueError with the reason if they are unusable."""
    used = (*columns.context, *columns.choices, columns.prefix, columns.label)
    missing = [name for name in used if name and name not in row.values]
    if missing:
        raise ValueError(f"there is no '{missing[0]}' in it")
    context = " ".join(filter(None, (row.values[name].strip() for name in columns.context)))
    choices, called = texts_of(row, columns)
    if not context and not any(choices):
        # An empty row is no error: it becomes an empty record.
        return Choices(number=0, texts=("",), names=(), path=path, line=row.line)
    if len(choices) < 2:
        problem = "there is 1 choice" if choices else "there are no choices"
        raise ValueError(f"{problem}, expected two or more. Write them, or remove the row")
    if not context:
        raise ValueError("the context is empty. Write it, or name its column with --context")
    if empty := [number for number, choice in enumerate(choices, 1) if not choice.strip()]:
        raise ValueError(f"choice {empty[0]} of {len(choices)} is empty. Write it, or remove the row")
    called = called or names(len(choices), counting)
    prefix = row.values[columns.prefix].strip() if columns.prefix else ""
    texts = (context, *(f"{prefix} {choice}".strip() for choice in choices))
    choice_label = (
        ChoiceLabel(label=row.values[columns.label], choices=choices, called=called) if columns.label else None
    )
    label = called[choice_index(choice_label, counting)] if choice_label else None
    return Choices(number=0, texts=texts, names=called, label=label, path=path, line=row.line)


def texts_of(row: Row, columns: ChoiceColumns) -> tuple[list[str], tuple[str, ...]]:
    """Return a row's choices, and their names if it has them; empty cells at the end are ignored.

    One column may hold a list of texts, or an object {"text": [...], "label": [...]}.
    """
    if len(columns.choices) > 1:
        texts = [row.values[name].strip() for name in columns.choices]
        # Rows may have fewer choices than the table has columns.
        while texts and not texts[-1]:
            texts.pop()
        return texts, ()
    (name,) = columns.choices
    # JSON lines have the list itself; other tables have it as JSON in a cell.
    choices: Any = row.source.get(name, row.values[name])
    if isinstance(choices, str):
        try:
            choices = parse_json(choices) if choices.strip() else []
        except JSONDecodeError:
            choices = None
    called: Any = ()
    if isinstance(choices, Mapping):
        choices, called = choices.get("text"), choices.get("label", ())
    if not isinstance(choices, list) or not all(isinstance(text, str) for text in choices):
        raise ValueError(f"'{name}' is no list of texts")
    # A label must name one choice only.
    if called and (len(called) != len(choices) or len(set(called)) != len(called)):
        raise ValueError(f"'{name}' has {len(choices)} texts, but {len(set(called))} different labels")
    return choices, tuple(map(str, called))


def _choices(header: Header) -> tuple[str, ...]:
    columns = tuple(_find_numbered(header.columns, _STEMS))
    single = header.first(_LISTS)
    return columns if len(columns) > 1 else (single,) if single else ()


def _context(header: Header, *, but: Sequence[str]) -> tuple[str, ...]:
    sentences = tuple(_find_numbered(header.columns, ("inputsentence",)))
    single = header.first(_CONTEXTS, but=but)
    return sentences or ((single,) if single else ())


def _find_numbered(columns: Sequence[str], stems: Sequence[str]) -> Iterator[str]:
    """Yield the columns named by the first stem that occurs with several numbers or letters: ending0, ending1, ..."""
    for stem in stems:
        group = [name for name in columns if (m := _NUMBERED.fullmatch(name.strip())) and m[1].lower() == stem]
        if len(group) > 1:
            yield from group
            return


def _quote_names(columns: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in columns)
