"""Label Studio's exports (JSON, JSON-MIN and CSV): marked spans, choices, ratings and numbers.

Positions are code points since release 1.2; before, its editor counted UTF-16 units (issues 1008 and 1347 of its
repository). Each span comes with its text, which distinguishes the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import JSONDecodeError
from typing import Any, ClassVar

from osbert.guarded import parse_json
from osbert.reading.record_forms.contract import RecordForm, Suggestion
from osbert_lab.annotation.record_values import TextOffsets, objects, require_list, span_of

_OWN = ("annotator", "annotation_id", "created_at", "updated_at", "lead_time")
"""Fields of JSON-MIN and CSV exports besides the data and the annotations."""
_ANNOTATIONS = ("annotations", "completions")
_NUMBERS = ("rating", "number")
Control = tuple[str, str, str]
"""The control of a result: the marking tag, the marked tag, and the type of marks."""


class LabelStudio(RecordForm):
    """{"data", "annotations": [{"result"}]}, or a row of the data with annotations by the names of their tags."""

    title: ClassVar[str] = "Label Studio"
    heading: ClassVar[str] = "annotation_id"

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Detect the tags of spans and of classes, and whether the records are tasks, which can hold predictions."""
        self.complete = any(isinstance(record.get("data"), dict) for record in records)
        controls: dict[str, Control] = {}
        self.flat = {name for record in records for name in record if _as_spans(_parse_cell(record[name])) is not None}
        self.spans = False
        for result in (result for record in records for result in _all_results(record)):
            kind = "choices" if "choices" in _value(result) else "labels" if "start" in _value(result) else ""
            control = tuple(result.get(name) for name in ("from_name", "to_name", "type"))
            self.spans |= kind == "labels"
            if kind and all(isinstance(part, str) for part in control):
                controls.setdefault(kind, control)  # type: ignore[arg-type]
        self.labels = controls.get("labels", ("label", "text", "labels"))
        self.choices = controls.get("choices", ("sentiment", "text", "choices"))

    @classmethod
    def claims(cls, record: Mapping[str, Any]) -> bool:
        """Return whether a record is a task with its data, or a row with the id of an annotation."""
        tasks = any(isinstance(record.get(name), list) for name in (*_ANNOTATIONS, "predictions"))
        return (isinstance(record.get("data"), dict) and tasks) or (
            cls.heading in record and any(name in record for name in _OWN if name != cls.heading)
        )

    def read(self, record: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the row of a task: its data, its spans, and a column for each tag of choices or numbers."""
        return [self._task(record) if isinstance(record.get("data"), dict) else self._row(record)]

    def add_suggestion(self, record: Mapping[str, Any], suggestion: Suggestion) -> dict[str, Any] | None:
        """Return a task with a prediction added; None for a row, which cannot hold one."""
        data = record.get("data")
        if not isinstance(data, dict) or (suggestion.marks is None and suggestion.labels is None):
            return None
        prediction = {
            "model_version": "osbert",
            "score": suggestion.score,
            "result": [*self._make_results(_text(data), suggestion)],
        }
        before = record.get("predictions")  # some exports have their number there
        return {**record, "predictions": [*(before if isinstance(before, list) else ()), prediction]}

    def _make_results(self, text: str, suggestion: Suggestion) -> Iterator[dict[str, Any]]:
        for number, mark in enumerate(suggestion.marks or (), 1):
            from_name, to_name, type_ = self.labels
            value = {"start": mark.start, "end": mark.end, "labels": [mark.type]}
            if text:
                value["text"] = text[mark.start : mark.end]
            fields = {"id": f"osbert-{number}", "from_name": from_name, "to_name": to_name, "type": type_}
            yield {**fields, "score": mark.probability, "value": value}
        if suggestion.labels is not None:
            from_name, to_name, type_ = self.choices
            yield {
                "from_name": from_name,
                "to_name": to_name,
                "type": type_,
                "value": {"choices": [*suggestion.labels]},
            }

    def _task(self, record: Mapping[str, Any]) -> dict[str, Any]:
        data = record["data"]
        row = {**({"id": record["id"]} if "id" in record else {}), **data}
        results = _results(record)
        spans: list[dict[str, Any]] | None = [] if self.spans else None
        for result in results or ():
            value, name = _value(result), str(result.get("from_name"))
            if "choices" in value:
                row[name] = require_list(value["choices"], "the choices")
            elif "start" in value and isinstance(
                kinds := value.get("labels", value.get(str(result.get("type")))), list
            ):
                spans = [*(spans or ()), *_spans(_text(data), value, kinds)]
            elif number := next((field for field in _NUMBERS if field in value), ""):
                row[name] = value[number]
        if results is None:
            row |= {"entities": None}
        elif spans is not None:
            row["entities"] = spans
        return row

    def _row(self, record: Mapping[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        spans: list[dict[str, Any]] | None = None
        for name, cell in record.items():
            value = _parse_cell(cell)
            marked = _as_spans(value)
            if isinstance(value, dict) and "choices" in value:
                row[name] = require_list(value["choices"], "the choices")
            elif marked is not None:
                span_lists = (_spans(_text(record), mark, mark["labels"]) for mark in marked)
                spans = [*(spans or ()), *(span for several in span_lists for span in several)]
            elif name not in _OWN and (cell or name not in self.flat):
                row[name] = cell
        if spans is None and self.flat:
            spans = []
        return row if spans is None else row | {"entities": spans}


def _results(record: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the results of the ground truth or of the first annotation that was not skipped; None if none."""
    annotations = [annotation for name in _ANNOTATIONS for annotation in objects(record.get(name), f"the {name}")]
    valid_annotations = [
        annotation for annotation in annotations if not (annotation.get("was_cancelled") or annotation.get("skipped"))
    ]
    first = sorted(valid_annotations, key=lambda annotation: not annotation.get("ground_truth"))[:1]
    return objects(first[0].get("result"), "the results") if first else None


def _all_results(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the results of all annotations and predictions of a task; [] if one cannot be read."""
    try:
        annotations = [
            annotation for name in (*_ANNOTATIONS, "predictions") for annotation in objects(record.get(name), name)
        ]
        return [result for annotation in annotations for result in objects(annotation.get("result"), "the results")]
    except ValueError:
        return []


def _value(result: Mapping[str, Any]) -> Mapping[str, Any]:
    value = result.get("value")
    return value if isinstance(value, dict) else {}


def _parse_cell(cell: Any) -> Any:
    """Return the JSON value of a CSV cell; any other value unchanged."""
    if not isinstance(cell, str) or not cell.startswith(("[", "{")):
        return cell
    try:
        return parse_json(cell)
    except JSONDecodeError:
        return cell


def _as_spans(value: Any) -> list[dict[str, Any]] | None:
    """Return a value if it is a list of spans, else None."""
    spans = (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(span, dict) and "start" in span and isinstance(span.get("labels"), list) for span in value)
    )
    return value if spans else None


def _spans(text: str, value: Mapping[str, Any], types: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the entities of a span, with its own text: whether that is the task's, the reader of entities checks."""
    mention = value["text"] if isinstance(value.get("text"), str) else ""
    entities = []
    for start, end, type_ in [span_of(value["start"], value.get("end"), type_) for type_ in types]:
        start, end = TextOffsets(text).matching((start, end), mention, likely="points") or (start, end)
        entities.append({"start": start, "end": end, "label": type_, "text": mention})
    return entities


def _text(data: Mapping[str, Any]) -> str:
    """Return the text of a task's data: "text", or its only text; "" if there is none or several."""
    texts = [value for name, value in data.items() if isinstance(value, str) and name not in _OWN]
    text = data.get("text", texts[0] if len(texts) == 1 else "")
    return text if isinstance(text, str) else ""
