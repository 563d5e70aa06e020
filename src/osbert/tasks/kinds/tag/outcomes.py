"""The outcome of tagging: true entities with the predicted types, false predictions, and one answer for all texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from osbert.reading.tagged.schemes import EntitySpan
from osbert.tasks import Prediction, Record
from osbert.tasks.kinds.tag.passages import EntityPrediction, TaggedText, TextEntity
from osbert.tasks.outcome import SIDES, UNPAIRED, RecordOutcome, Side, TextMark


def entities_outcome(prediction: EntityPrediction, record: TaggedText, error: float) -> RecordOutcome:
    """Return the outcome of a text: right if exactly its entities are predicted.

    The confidence is the lowest of all entities. A predicted entity is paired with the true one of the same words,
    whatever its type; other entities are unpaired.
    """
    true = {(span.start, span.end): span for span in record.label}
    guesses = {(span.start, span.end): span for span in prediction.words}
    marks = [_mark(record, span, side) for side, spans in zip(SIDES, (true, guesses)) for span in spans.values()]
    probabilities = [entity.probability for entity in prediction.value]
    right = {*prediction.words} == {*record.label}
    return RecordOutcome(
        truth=_list_entities(record.expected),
        guess=_list_entities(prediction.value),
        score=float(right),
        right=right,
        error=error,
        confidence=min(probabilities, default=None),
        pairs=tuple(
            (_type(true.get(word_range)), _type(guesses.get(word_range))) for word_range in sorted({*true} | {*guesses})
        ),
        beliefs=tuple(
            (probability, span in {*record.label}) for probability, span in zip(probabilities, prediction.words)
        ),
        marks=tuple(marks),
    )


def only_entities(predictions: Sequence[Prediction], records: Sequence[Record], *, words: bool) -> str:
    """Return the answer of all records in words if no true entity is found, or if every word has the same tag.

    `words`: whether each word has a tag of its own. "" for other answers, and if nothing is predicted.
    """
    predicted = {span.type for prediction in predictions for span in prediction.comparable}
    if words and len(predicted) == 1 and len({span.type for record in records for span in record.label}) > 1:
        return f"tagged {predicted.pop()!r} in every word"
    pairs = zip(predictions, records, strict=True)
    right = any({*prediction.comparable} & {*record.label} for prediction, record in pairs)
    true = any(record.label for record in records)
    return "found to hold none of its entities" if predicted and true and not right else ""


def _mark(record: TaggedText, span: EntitySpan, side: Side) -> TextMark:
    entity = record.entity(span)
    return TextMark(start=entity.start, end=entity.end, name=span.type, of=side)


def _type(span: EntitySpan | None) -> str:
    return UNPAIRED if span is None else span.type


def _list_entities(entities: Iterable[TextEntity]) -> str:
    return ", ".join(f"{one.text} ({one.type})" for one in entities) or "(no entity)"
