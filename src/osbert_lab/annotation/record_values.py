"""Values of annotation tools' records, checked, and positions in texts by code points or UTF-16 units."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

from osbert.text.words import Range

Units = Literal["points", "utf-16"]


def span_of(start: Any, end: Any, type_: Any) -> tuple[int, int, str]:
    """Return a marked span. Raises ValueError if its ends are not integers or its type is not a text."""
    if type(start) is not int or type(end) is not int:
        raise ValueError(f"start and end are not whole numbers: {str((start, end))[:60]}")
    if not isinstance(type_, str) or not type_:
        raise ValueError(f"the span from {start} to {end} has no label: {type_!r:.40}")
    return start, end, type_


def text_in(record: Mapping[str, Any], name: str = "text") -> str:
    """Return the text of a record. Raises ValueError if there is none."""
    text = record.get(name)
    if not isinstance(text, str):
        raise ValueError(f"it has no '{name}', only {', '.join(map(str, record)) or 'nothing'}")
    return text


def require_list(value: Any, what: str) -> list[Any]:
    """Return a list, [] for None. Raises ValueError for any other value; `what` is its name."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{what} are not a list: {value!r:.40}")
    return value


def objects(value: Any, what: str) -> list[dict[str, Any]]:
    """Return a list of objects, with the checks of `require_list`."""
    elements = require_list(value, what)
    for element in elements:
        if not isinstance(element, dict):
            raise ValueError(f"{what} contain {element!r:.40}, which is not an object")
    return elements


class TextOffsets:
    """Converts positions in a text between code points, as in Python, and UTF-16 units, as in JavaScript and Java.

    They differ behind characters beyond the Basic Multilingual Plane, such as emoji, which are two units.
    """

    def __init__(self, text: str) -> None:
        """Index the UTF-16 units of a text, unless they are its code points."""
        self.text = text
        self.plain = text.isascii() or max(text) <= "\uffff"
        # The UTF-16 unit at which each code point begins, and the length of the text.
        self.starts = [] if self.plain else [*accumulate((1 + (character > "\uffff") for character in text), initial=0)]

    def points(self, span: Range, units: Units) -> Range | None:
        """Return a span in code points; None if it is outside the text or splits a character."""
        bounds = [position if self.plain or units == "points" else self._point(position) for position in span]
        start, end = bounds
        return (start, end) if 0 <= start < end <= len(self.text) else None

    def units(self, span: Range) -> Range:
        """Return a span of code points in UTF-16 units."""
        return span if self.plain else (self.starts[span[0]], self.starts[span[1]])

    def matching(self, span: Range, mention: str, *, likely: Units) -> Range | None:
        """Return a span in code points, in the units in which it covers `mention`; else in the `likely` ones."""
        if self.plain or not mention:
            return self.points(span, likely)
        other: Units = "points" if likely == "utf-16" else "utf-16"
        for units in (likely, other):
            point_span = self.points(span, units)
            if point_span and self.text[slice(*point_span)] == mention:
                return point_span
        return self.points(span, likely) or self.points(span, other)

    def detect_units(self, spans: Sequence[Range], *, likely: Units) -> Units:
        """Return the units in which more spans begin and end at word boundaries; `likely` if equal.

        Units in which a span is outside the text or splits a character count less than any others.
        """
        if self.plain:
            return "points"
        points, other = self._score(spans, "points"), self._score(spans, "utf-16")
        return likely if points == other else "points" if points > other else "utf-16"

    def _point(self, unit: int) -> int:
        """Return the code point that begins at a UTF-16 unit, -1 if none does."""
        index = bisect_left(self.starts, unit)
        return index if index < len(self.starts) and self.starts[index] == unit else -1

    def _score(self, spans: Sequence[Range], units: Units) -> int:
        score = 0
        for span in spans:
            point_span = self.points(span, units)
            if point_span is None:
                return -1
            start, end = point_span
            score += self._is_boundary(start) and not self.text[start].isspace()
            score += self._is_boundary(end) and not self.text[end - 1].isspace()
        return score

    def _is_boundary(self, position: int) -> bool:
        around = self.text[max(position - 1, 0) : position + 1]
        return len(around) < 2 or position == 0 or not (around[0].isalnum() and around[1].isalnum())
