"""Training texts that look wrongly read or written: a wrong encoding, what stands for a missing text, HTML entities."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from osbert.runs.seen_texts import TELLING
from osbert.tasks import Record
from osbert.terminal import format_count, one_line

MISSING = frozenset({"nan", "<na>", "nat", "n/a", "#n/a", "null", "\\n", "#value!", "#ref!", "#name?", "#div/0!", "-"})
"""What pandas, spreadsheets and databases write for a cell without a value, or with an error, in lower case."""
LOOKED = 10_000
"""Number of first rows in which characters are counted."""
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#x[0-9a-f]{1,6});", re.IGNORECASE)
_SECOND = "\u0080-\u00bf\u0152-\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122"
_MISREAD = re.compile(f"\ufffd|[\u00c2\u00c3\u00e2][{_SECOND}]")
"""U+FFFD, or UTF-8 that was read as cp1252: an accented letter is then two characters, as in caf\u00c3\u00a9."""


def describe_missing(records: Sequence[Record]) -> Iterator[str]:
    """Yield a warning if texts are what programs write for a missing one."""
    if rows := [record for record in records if any(text.strip().casefold() in MISSING for text in record.texts)]:
        yield (
            f"{_count(rows)} a text such as '{one_line(min(rows[0].texts, key=len))}' ({rows[0].place}), which "
            "programs write for a missing one. Remove such rows if it is."
        )


def describe_misread(records: Sequence[Record]) -> Iterator[str]:
    """Yield a warning if many texts have characters that come of a wrong encoding."""
    for many in _describe_many(records, _MISREAD, "characters of a file that was read in a wrong encoding"):
        yield f"{many}. Write the file again from its source, as UTF-8."


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
