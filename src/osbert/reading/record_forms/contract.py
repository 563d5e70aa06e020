"""The contract of a form of records: an annotation tool's object in, plain rows out; and back with a prediction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self


class SpanMark(NamedTuple):
    """A predicted entity: characters (code points) from `start` to before `end`, its type and its probability."""

    start: int
    end: int
    type: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """What a model says of a record: entities, or labels with the probabilities of all; None for what it says not."""

    marks: tuple[SpanMark, ...] | None = None
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """Return what a prediction says, given as plain values: "prediction" and "probabilities".

        >>> Suggestion.of({"prediction": "good", "probabilities": {"good": 0.9, "bad": 0.1}}).score
        0.9
        """
        value, shares = said.get("prediction"), said.get("probabilities") or {}
        if isinstance(value, str):  # a label, and not the answer to a question, if it has a probability among all
            return cls(labels=(value,), probabilities=shares) if value in shares else cls()
        if not isinstance(value, list):
            return cls()
        if all(isinstance(one, str) for one in value) and (value or shares):
            return cls(labels=tuple(value), probabilities=shares)
        if all(isinstance(one, Mapping) and {*SpanMark._fields} <= {*one} for one in value):
            return cls(marks=tuple(SpanMark(*(one[name] for name in SpanMark._fields)) for one in value))
        return cls()

    @property
    def score(self) -> float:
        """Return the lowest probability of the predictions, 1 if there are none."""
        shares = [mark.probability for mark in self.marks or ()]
        return min([*shares, *(self.probabilities.get(label, 0.0) for label in self.labels or ())], default=1.0)


class RecordForm:
    """A form of records, detected from the first of them.

    A record's rows have "text" and, of a text with marked spans, "entities": [[start, end, type], ...] in code points,
    None where nobody has marked it; its classes are in a column of their own, as a list.
    """

    title: ClassVar[str]
    """What it is called."""
    heading: ClassVar[str] = ""
    """A column that a CSV file of this form has, "" where there is none such."""
    complete: bool = False
    """Whether `filled` holds all there is to say, so that no fields of a prediction are added."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Learn from the first records what the file holds."""

    @classmethod
    def claims(cls, record: Mapping[str, Any]) -> bool:
        """Return whether a record is of this form and of no other."""
        raise NotImplementedError

    def read(self, record: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the rows of a record, most often one. Raises ValueError, saying why, if it cannot be read."""
        raise NotImplementedError

    def filled(self, record: Mapping[str, Any], said: Suggestion) -> dict[str, Any] | None:
        """Return the record with what a model says in the place for it, None where the form has none.

        What people have marked stays as it is.
        """
        return None


def span_of(start: Any, end: Any, type_: Any) -> tuple[int, int, str]:
    """Return a marked span. Raises ValueError where its places are no whole numbers, or its type is no text."""
    if type(start) is not int or type(end) is not int:
        raise ValueError(f"start and end are not whole numbers: {str((start, end))[:60]}")
    if not isinstance(type_, str) or not type_:
        raise ValueError(f"the span from {start} to {end} has no label: {type_!r:.40}")
    return start, end, type_


def text_in(record: Mapping[str, Any], name: str = "text") -> str:
    """Return the text of a record. Raises ValueError if there is none."""
    text = record.get(name)
    if not isinstance(text, str):
        raise ValueError(f"there is no '{name}' in it; it has {', '.join(map(str, record)) or 'nothing'}")
    return text


def listed(value: Any, what: str) -> list[Any]:
    """Return a list, an empty one for None. Raises ValueError for another value, `what` in words."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{what} are no list: {value!r:.40}")
    return value


def objects(value: Any, what: str) -> list[dict[str, Any]]:
    """Return a list of objects as `listed`."""
    found = listed(value, what)
    for one in found:
        if not isinstance(one, dict):
            raise ValueError(f"{what} hold {one!r:.40}, which is no object")
    return found
