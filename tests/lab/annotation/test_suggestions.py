"""Predictions in annotation tools' records: read back they are the same, and what people marked stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotation_records import ENTITIES, lines
from osbert.reading.record_forms.contract import SpanMark, Suggestion
from osbert.reading.table import AnnotatedTable, open_table
from osbert.reading.tagged.rows import marks as entity_marks

WORDS = st.sampled_from(["EU", "rejects", "🙂", "漢字", "Müller", "-", "x" * 9])


@st.composite
def suggestions(draw: st.DrawFn) -> tuple[str, tuple[SpanMark, ...]]:
    """Draw a text of words, and entities of some of them that do not overlap."""
    words = draw(st.lists(WORDS, min_size=1, max_size=6))
    marks, place = [], 0
    for word in words:
        if draw(st.booleans()):
            marks.append(SpanMark(place, place + len(word), draw(st.sampled_from(["ORG", "PER"])), 0.5))
        place += len(word) + 1
    return " ".join(words), tuple(marks)


@given(suggestions())
def test_predictions_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[str, tuple[SpanMark, ...]]
) -> None:
    text, marks = drawn
    folder = tmp_path_factory.mktemp("forms")
    records = [
        {"id": 1, "text": text, "label": [], "Comments": []},
        {"id": 1, "text": text, "entities": [], "relations": [], "Comments": []},
        {"text": text, "tokens": [], "_input_hash": 1},
        {"data": {"text": text}, "annotations": [], "predictions": []},
    ]
    for record in records:
        table = open_table(lines(folder, [record]))
        assert isinstance(table, AnnotatedTable)
        filled = table.form.add_suggestion(record, Suggestion(marks=marks))
        assert filled is not None
        if "data" in filled:  # predictions become annotations when a person accepts them
            filled = {**filled, "annotations": filled["predictions"]}
        [row] = table.form.read({**filled, "answer": "accept"} if "_input_hash" in filled else filled)
        read_spans = entity_marks(row.get("entities") or [], text)
        assert [tuple(one) for one in read_spans] == [(one.start, one.end, one.type) for one in marks]


def test_what_a_person_marked_stays(tmp_path: Path) -> None:
    said = Suggestion(marks=(SpanMark(3, 10, "X", 0.5),))
    [prodigy] = ENTITIES["Prodigy"]
    unanswered = {name: value for name, value in prodigy.items() if name != "answer"}
    for record in (*ENTITIES["doccano, labels"], *ENTITIES["doccano, relations"], prodigy, unanswered):
        table = open_table(lines(tmp_path, [record]))
        assert isinstance(table, AnnotatedTable) and table.form.add_suggestion(record, said) == record
    [task] = ENTITIES["Label Studio"]
    table = open_table(lines(tmp_path, [task]))
    assert isinstance(table, AnnotatedTable)
    filled = table.form.add_suggestion(task, said)
    assert filled is not None and filled["annotations"] == task["annotations"]
    [prediction] = filled["predictions"]
    [result] = prediction["result"]
    assert (result["from_name"], result["to_name"], result["type"]) == ("ner", "words", "labels")
    assert result["value"] == {"start": 3, "end": 10, "text": "rejects", "labels": ["X"]} and result["score"] == 0.5


def test_labels_go_to_their_places(tmp_path: Path) -> None:
    one = Suggestion.of({"prediction": "good", "probabilities": {"good": 0.75, "bad": 0.25}})
    several = Suggestion.of({"prediction": ["a", "b"], "probabilities": {"a": 0.9, "b": 0.6, "c": 0.1}})
    assert Suggestion.of({"prediction": 3.5}) == Suggestion() == Suggestion.of({"prediction": None})
    assert Suggestion.of({"prediction": "in Paris", "probability": 0.5}) == Suggestion()  # the answer to a question

    def filled(record: dict[str, Any], said: Suggestion) -> dict[str, Any]:
        table = open_table(lines(tmp_path, [record]))
        assert isinstance(table, AnnotatedTable)
        return table.form.add_suggestion(record, said) or {}

    assert filled({"id": 1, "text": "x", "label": [], "Comments": []}, several)["label"] == ["a", "b"]
    prodigy = {"text": "x", "_input_hash": 1, "_task_hash": 2}
    assert filled(prodigy, one) == {"text": "x", "_input_hash": 1, "label": "good", "score": 0.75}
    choice = filled(prodigy, several)
    assert choice["accept"] == ["a", "b"] and [option["id"] for option in choice["options"]] == ["a", "b", "c"]
    task = filled({"data": {"text": "x"}, "predictions": []}, one)
    [prediction] = task["predictions"]
    assert prediction["score"] == 0.75 and prediction["result"][0]["value"] == {"choices": ["good"]}


def test_what_is_odd_in_a_record_stays_or_is_passed_over(tmp_path: Path) -> None:
    said = Suggestion(marks=(SpanMark(0, 2, "X", 0.5),))
    rows = [{"text": "EU", "_input_hash": 1, "tokens": tokens} for tokens in (["EU"], [{"start": [0]}], 3)]
    table = open_table(lines(tmp_path, rows))
    assert isinstance(table, AnnotatedTable)
    for row in rows:
        assert (table.form.add_suggestion(row, said) or {})["spans"] == [
            {"start": 0, "end": 2, "label": "X", "score": 0.5}
        ]
    task = {"data": {"text": "EU"}, "annotations": [], "predictions": 0}
    table = open_table(lines(tmp_path, [task]))
    assert isinstance(table, AnnotatedTable)
    assert len((table.form.add_suggestion(task, said) or {})["predictions"]) == 1


def test_doccano_of_any_release(tmp_path: Path) -> None:
    record = {"id": 1, "data": "🙂 EU a", "label": [[6, 7, "X"]]}
    table = open_table(lines(tmp_path, [record]))
    assert isinstance(table, AnnotatedTable) and table.columns == ("id", "text", "entities")
    assert [*table.form.read(record)] == [{"id": 1, "text": "🙂 EU a", "entities": [[5, 6, "X"]]}]
    assert (table.form.add_suggestion({"id": 1, "data": "EU", "label": []}, Suggestion(labels=("X",))) or {})[
        "label"
    ] == ["X"]
    table = open_table(lines(tmp_path, [{"text": "EU", "label": "X", "Comments": "of my own table"}]))
    assert not isinstance(table, AnnotatedTable)
