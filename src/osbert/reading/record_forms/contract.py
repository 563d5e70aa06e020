"""The contract of a record form: from the object of an annotation tool to plain rows, and back with predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self


class SpanMark(NamedTuple):
    """A predicted entity: its characters (code points) from `start` up to `end`, its type and probability."""

    start: int
    end: int
    type: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A prediction for a record: entities, or labels with all probabilities; None for what it does not predict."""

    marks: tuple[SpanMark, ...] | None = None
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, prediction: Mapping[str, Any]) -> Self:
        """Return the suggestion of a prediction as plain values, with "prediction" and "probabilities".

        >>> Suggestion.of({"prediction": "good", "probabilities": {"good": 0.9, "bad": 0.1}}).score
        0.9
        """
        value, probabilities = prediction.get("prediction"), prediction.get("probabilities") or {}
        if isinstance(value, str):  # a label, and not the answer to a question, if it has a probability among all
            return cls(labels=(value,), probabilities=probabilities) if value in probabilities else cls()
        if not isinstance(value, list):
            return cls()
        if all(isinstance(label, str) for label in value) and (value or probabilities):
            return cls(labels=tuple(value), probabilities=probabilities)
        if all(isinstance(span, Mapping) and {*SpanMark._fields} <= {*span} for span in value):
            return cls(marks=tuple(SpanMark(*(span[name] for name in SpanMark._fields)) for span in value))
        return cls()

    @property
    def score(self) -> float:
        """Return the lowest probability of the predictions, 1 if there are none."""
        mark_probabilities = [mark.probability for mark in self.marks or ()]
        return min(
            [*mark_probabilities, *(self.probabilities.get(label, 0.0) for label in self.labels or ())], default=1.0
        )


class RecordForm:
    """A record form, detected from the first records.

    Rows have "text" and, for texts with marked spans, "entities": [[start, end, type], ...] in code points, None if
    nobody has annotated the text. Classes are a list in a column of their own.
    """

    title: ClassVar[str]
    """Its name in messages."""
    heading: ClassVar[str] = ""
    """A column name typical of a CSV file of this form, "" if there is none."""
    complete: bool = False
    """Whether `filled` is complete, so that no further fields of the prediction are added."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Detect properties of the file from its first records."""

    @classmethod
    def claims(cls, record: Mapping[str, Any]) -> bool:
        """Return whether a record has this form and no other."""
        raise NotImplementedError

    def read(self, record: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the rows of a record, usually one. Raises ValueError with the reason if it cannot be read."""
        raise NotImplementedError

    def add_suggestion(self, record: Mapping[str, Any], suggestion: Suggestion) -> dict[str, Any] | None:
        """Return the record with the prediction in the fields of this form, None if it has none for it.

        Human annotations are never changed.
        """
        return None
