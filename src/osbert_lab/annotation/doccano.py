"""doccano's JSON lines, of all releases: marked spans, classes, and both with relations.

Its editor counts UTF-16 units (issues 1347 and 2290 of its repository), but files made with Python have code points.
They differ behind emoji; the units in which more spans end at word boundaries are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from osbert.reading.record_forms.contract import RecordForm, Suggestion
from osbert_lab.annotation.record_values import TextOffsets, require_list, span_of, text_in

_SPANS = ("entities", "annotations", "labels", "label")
_TRACES = ("Comments", "annotation_approver")
"""Fields that only doccano writes."""


class Doccano(RecordForm):
    """{"id", "text", "label": [[start, end, type]]}, also with start_offset and end_offset, or "label": [class]."""

    title: ClassVar[str] = "doccano"

    @classmethod
    def claims(cls, record: Mapping[str, Any]) -> bool:
        """Return whether a record has an id and spans as lists, spans with start_offset, or a field of doccano."""
        if not isinstance(record.get(_text_name(record)), str):
            return False
        marked = [record[name] for name in _SPANS if record.get(name) is not None]
        if not all(isinstance(value, list) for value in marked):  # a table of one's own
            return False
        values = [value[0] for value in marked if value]
        if any(isinstance(mark, dict) and "start_offset" in mark for mark in values):
            return True
        return ("id" in record and any(isinstance(mark, list) for mark in values)) or any(
            name in record for name in _TRACES
        )

    def read(self, record: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the text with its spans, or its classes."""
        text = text_in(record, called := _text_name(record))
        row = {"text" if name == called else name: value for name, value in record.items() if name not in _SPANS}
        name = next((field for field in _SPANS if field in record), "")
        marked = require_list(record.get(name), f"the {name}") if name else []
        if marked and all(isinstance(mark, str) for mark in marked):
            row["label"] = marked
        elif marked or name == "entities":
            row["entities"] = self._spans(text, marked)
        elif name:
            row |= {"entities": [], "label": []}  # of which task the file is, no record says that has nothing
        if "cats" in record:
            row["label"] = require_list(record["cats"], "the cats")
        return [row]

    def add_suggestion(self, record: Mapping[str, Any], suggestion: Suggestion) -> dict[str, Any] | None:
        """Return the record with predicted spans or classes if it has none."""
        text = text_in(record, _text_name(record))
        if suggestion.marks is not None:
            name = next((field for field in _SPANS if field in record), "label")
            if record.get(name):
                return dict(record)
            spans = [(*TextOffsets(text).units((mark.start, mark.end)), mark.type) for mark in suggestion.marks]
            offsets = name in ("entities", "annotations")
            entities = [
                {"label": type_, "start_offset": start, "end_offset": end} if offsets else [start, end, type_]
                for start, end, type_ in spans
            ]
            return {**record, name: entities}
        name = next((field for field in ("cats", "labels", "label") if field in record), "label")
        if suggestion.labels is None or record.get(name):
            return dict(record)
        return {**record, name: list(suggestion.labels)}

    def _spans(self, text: str, marked: list[Any]) -> list[list[Any]]:
        spans = [_span(mark) for mark in marked]
        offsets = TextOffsets(text)
        units = offsets.detect_units([(start, end) for start, end, _ in spans], likely="utf-16")
        return [[*(offsets.points((start, end), units) or (start, end)), type_] for start, end, type_ in spans]


def _text_name(record: Mapping[str, Any]) -> str:
    """Return the field of the text, which releases 1.3 and 1.4 call "data"."""
    return "data" if "text" not in record and isinstance(record.get("data"), str) else "text"


def _span(value: Any) -> tuple[int, int, str]:
    if isinstance(value, list) and len(value) == 3:
        return span_of(*value)
    if isinstance(value, dict) and "start_offset" in value:
        type_ = value.get("label")
        # Old exports hold the numbers of labels, whose names are in another file.
        return span_of(value["start_offset"], value.get("end_offset"), str(type_) if type(type_) is int else type_)
    raise ValueError(f"a span is neither [start, end, label] nor has start_offset and end_offset: {str(value)[:60]}")
