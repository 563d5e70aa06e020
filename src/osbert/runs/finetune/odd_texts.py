"""Texts and numbers that look wrongly read or written: a wrong encoding, HTML entities, marks of a missing one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from osbert.runs.seen_texts import TELLING, plain_texts
from osbert.tasks import Record, Task
from osbert.terminal import format_count, one_line

MISSING = frozenset({"nan", "<na>", "nat", "n/a", "#n/a", "null", "\\n", "#value!", "#ref!", "#name?", "#div/0!", "-"})
"""What pandas, spreadsheets and databases write for a cell without a value, or with an error, in lower case."""
LOOKED = 10_000
"""Number of first rows in which characters are counted."""
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#x[0-9a-f]{1,6});", re.IGNORECASE)
_SECOND = "\u0080-\u00bf\u0152-\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122"
_PYTHON_BYTES = r"\Ab'.*'\s*\Z|\Ab\".*\"\s*\Z"
_MISREAD = re.compile(rf"[\0\ufffd\ud800-\udfff]|[\u00c2\u00c3\u00e2][{_SECOND}]|{_PYTHON_BYTES}", re.DOTALL)
"""NUL, U+FFFD, half a surrogate pair; UTF-8 that was read as cp1252, \u00c3\u00a9 for an accented e; Python's bytes."""


def text_warnings(task: Task, records: Sequence[Record]) -> Iterator[str]:
    """Yield warnings: texts that stand for a missing one; many that were wrongly decoded, or have several classes."""
    if rows := [record for record in records if any(map(_stands_for_none, record.texts))]:
        yield (
            f"{_count(rows)} a text such as '{one_line(min(rows[0].texts, key=len))}' ({rows[0].place}), which "
            "programs write for a missing one. Remove such rows if it is."
        )
    for many in _describe_many(records, _MISREAD, "a text that was wrongly decoded"):
        yield f"{many}. Write the file again from its source, as UTF-8."
    if task.classes and all(isinstance(record.label, str) for record in records):
        yield from _describe_contradictions(records)


def number_warnings(records: Sequence[Record]) -> Iterator[str]:
    """Yield a warning about numbers such as -999 that are farther from all others than these are from each other."""
    if not all(isinstance(record.label, float) for record in records):
        return
    numbers = [float(record.label) for record in records]
    nines = [abs(number) >= 99 and {*f"{abs(number):f}".rstrip("0")} == {*"9."} for number in numbers]
    others = [number for number, odd in zip(numbers, nines) if not odd]
    low, high = min(others, default=0.0), max(others, default=0.0)
    candidates = [record for record, odd in zip(records, nines) if odd]
    if rows := [record for record in candidates if others and not 2 * low - high <= record.label <= 2 * high - low]:
        yield (
            f"{format_count(len(rows), 'row')} {'has' if len(rows) == 1 else 'have'} a number such as "
            f"{rows[0].label:g} ({rows[0].place}) beside others from {low:g} to {high:g}: programs write it for a "
            "missing one. Remove such rows if it is."
        )


def _stands_for_none(text: str) -> bool:
    return len(text) < 20 and ((text := text.strip()) == "None" or text.casefold() in MISSING)


def _describe_contradictions(records: Sequence[Record]) -> Iterator[str]:
    classes = defaultdict[Any, set[str]](set)
    keys = list(map(plain_texts, records))  # of pairs in their order: swapped ones may differ
    for key, record in zip(keys, records, strict=True):
        classes[key].add(record.label)
    rows = [record for key, record in zip(keys, records, strict=True) if len(classes[key]) > 1]
    if rows and len(rows) >= TELLING * len(records):
        yield (
            f"{_count(rows)} the text of another one with another label (first: {rows[0].place}): what is right for "
            "one is wrong for the other. For several labels per row: osbert finetune multilabel."
        )


def describe_entities(records: Sequence[Record]) -> Iterator[str]:
    """Yield a remark if many texts have HTML entities."""
    yield from _describe_many(records, _ENTITY, "HTML entities, which are read as they are")


def _describe_many(records: Sequence[Record], pattern: re.Pattern[str], what: str) -> Iterator[str]:
    """Yield how many of the first records have a pattern in a text, and the first text; nothing if they are few."""
    matches = [(record, match) for record in records[:LOOKED] if (match := _search(record, pattern))]
    if matches and len(matches) >= TELLING * len(records[:LOOKED]):
        record, match = matches[0]
        excerpt = one_line(match.string[max(0, match.start() - 10) : match.end() + 10])
        yield f"{_count(matches)} {what}: '{excerpt}' ({record.place})"


def _search(record: Record, pattern: re.Pattern[str]) -> re.Match[str] | None:
    return next(filter(None, map(pattern.search, record.texts)), None)


def _count(rows: Sequence[object]) -> str:
    return f"{format_count(len(rows), 'training row')} {'has' if len(rows) == 1 else 'have'}"
