"""Entities marked by characters, as in JSON lines, and the words that they cover.

Forms: {"text", "entities": [{"start", "end", "label"}]}, also [start, end, label] and other usual names; and that of
CLUENER, {"text", "label": {type: {mention: [[start, last], ...]}}}, where `last` is the last character.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from osbert.reading.tagged.schemes import EntitySpan
from osbert.text.words import Range

_TYPES = ("label", "type", "entity", "tag")


def marks(value: Any, text: str) -> list[EntitySpan]:
    """Return the entities (spans of characters) that a JSON value marks in `text`, in order.

    Raises ValueError with the reason if one has an unknown form or is outside the text.
    """
    spans = sorted(_mentions(value, text) if isinstance(value, Mapping) else _list_spans(value))
    for start, end, type_ in spans:
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"the {type_} from {start} to {end} does not lie in the text, which has {len(text)} characters"
            )
    return spans


def apart(spans: Sequence[EntitySpan]) -> list[EntitySpan]:
    """Return the spans in order, without those that overlap a longer one (or an earlier one of equal length)."""
    disjoint: list[EntitySpan] = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span)):
        if all(span.end <= other.start or other.end <= span.start for other in disjoint):
            disjoint.append(span)
    return sorted(disjoint)


def cover_words(span: EntitySpan, words: Sequence[Range]) -> EntitySpan:
    """Return the span of the words that a span of characters touches; empty if there are none."""
    first = bisect_right(words, span.start, key=lambda word: word[1])
    end = bisect_left(words, span.end, key=lambda word: word[0])
    return EntitySpan(first, max(first, end), span.type)


def _mentions(value: Mapping[str, Any], text: str) -> Iterator[EntitySpan]:
    """Yield CLUENER's entities."""
    for type_, mentions in value.items():
        if not isinstance(mentions, Mapping):
            raise ValueError(f"the {type_} is not of the form {{mention: [[start, last], ...]}}")
        for mention, ranges in mentions.items():
            for bounds in ranges:
                start, last = _numbers(bounds[:2], bounds)
                if text[start : last + 1] != mention:
                    raise ValueError(f"the {type_} '{mention}' does not stand at {start} to {last}")
                yield EntitySpan(start, last + 1, type_)


def _list_spans(value: Any) -> Iterator[EntitySpan]:
    if not isinstance(value, list):
        raise ValueError(f"the entities are no list: {str(value)[:40]}")
    for item in value:
        if isinstance(item, Mapping):
            type_ = next((item[name] for name in _TYPES if name in item), None)
            bounds = [item.get("start"), item.get("end")]
        elif isinstance(item, list) and len(item) == 3:
            *bounds, type_ = item
        else:
            raise ValueError(f"no entity with start, end and label: {str(item)[:60]}")
        if not isinstance(type_, str) or not type_:
            raise ValueError(f"an entity without a label: {str(item)[:60]}")
        yield EntitySpan(*_numbers(bounds, item), type_)


def _numbers(bounds: Sequence[Any], item: Any) -> tuple[int, int]:
    if len(bounds) != 2 or not all(type(number) is int for number in bounds):
        raise ValueError(f"start and end are not whole numbers: {str(item)[:60]}")
    return bounds[0], bounds[1]
