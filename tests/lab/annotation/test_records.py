"""Annotation tools' records: what is read of them by every task, and what predictions become in them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from annotation_records import ENTITIES, TEXT, array, lines
from osbert.errors import Problems
from osbert.reading.memory import tables
from osbert.reading.table import AnnotatedTable, Table
from osbert.reading.tagged.files import TaggedFile, TagReading, read_tagged
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.loading import with_data
from refusals import refusal

EMOJI = "🙂🙂 EU rejects"
MOVED = {"start": 0, "end": 1, "labels": ["A"], "text": "c"}
"""A mark on another text than the one that it comes with, as after a text was edited."""


def tagged(path: Path, *, labelled: bool = True) -> TaggedFile:
    problems = Problems(heading=f"{path} cannot be used")
    found = read_tagged(path, TagReading(), problems, labelled=labelled)
    problems.stop_if_any()
    return found


def entities(path: Path) -> list[list[tuple[str, str]]]:
    """Return the entities of each text of a file: what stands there, and its type."""
    return [
        [(one.text[one.words[start][0] : one.words[end - 1][1]], type_) for start, end, type_ in one.spans or ()]
        for one in tagged(path).sentences
    ]


def classes(task: Classify | Multilabel) -> list[Any]:
    problems = Problems(heading="cannot be used")
    found = [record.label for record in task.source.read(task.source.file("train"), problems, labelled=True)]
    problems.stop_if_any()
    return found


@pytest.mark.parametrize("form", ENTITIES)
@pytest.mark.parametrize("write", [lines, array])
def test_entities(tmp_path: Path, form: str, write: Any) -> None:
    path = write(tmp_path, ENTITIES[form])
    assert entities(path) == [[("EU", "ORG"), ("German", "MISC")]]
    title, _, container = form.partition(", ")
    assert tagged(path).form.startswith(title) and container is not None
    [memory] = tables(ENTITIES[form]).values()
    found = read_tagged(memory, TagReading(), noted := Problems(heading=""), labelled=True)
    assert found.sentences[0].text == TEXT and not noted.count


def test_pairs_of_a_text_and_its_annotations(tmp_path: Path) -> None:
    pairs = [[TEXT, {"entities": [[0, 2, "ORG"]]}], ["no name", {"entities": [], "cats": {"A": 0.9, "B": 0.1}}]]
    assert entities(array(tmp_path, pairs)) == [[("EU", "ORG")], []]


def test_label_studios_csv(tmp_path: Path) -> None:
    marked = json.dumps([{"start": 0, "end": 2, "text": "EU", "labels": ["ORG"]}])
    rows = [
        ["annotation_id", "annotator", "created_at", "id", "label", "lead_time", "sentiment", "text", "updated_at"],
        [1, 1, "2024-01-01", 1, marked, 2.5, "bad", TEXT, "2024-01-01"],
        [2, 1, "2024-01-01", 2, "", 2.5, '{"choices": ["good", "long"]}', "nobody there", "2024-01-01"],
    ]
    path = tmp_path / "in.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert entities(path) == [[("EU", "ORG")], []]
    assert classes(Multilabel(data=str(path), label="sentiment", separator="none")) == [("bad",), ("good", "long")]
    with refusal("unusable-row", "line 3", '["good", "long"]'):
        classes(Classify(data=str(path)))


def test_label_studios_conll(tmp_path: Path) -> None:
    path = tmp_path / "in.conll"
    path.write_text("-DOCSTART- -X- O\nEU -X- _ B-ORG\nrejects -X- _ O\n\nGerman -X- _ B-MISC\n\n")
    found = tagged(path)
    assert [one.text for one in found.sentences] == ["EU rejects", "German"]


CLASSES: dict[str, tuple[list[dict[str, Any]], list[Any]]] = {
    "doccano": ([{"id": 1, "text": "a", "label": ["good"]}, {"id": 2, "text": "b", "label": ["bad"]}], ["good", "bad"]),
    "doccano, cats": ([{"id": 1, "text": "a", "cats": ["good"], "entities": [], "Comments": []}], ["good"]),
    "Prodigy, choice": (
        [
            {"text": "a", "options": [{"id": "good", "text": "good"}], "accept": ["good"], "answer": "accept"},
            {"text": "b", "options": [], "accept": ["bad"], "answer": "accept"},
        ],
        ["good", "bad"],
    ),
    "Prodigy, one label": (
        [
            {"text": "a", "label": "good", "answer": "accept"},
            {"text": "b", "label": "good", "answer": "reject"},
        ],
        ["good", "not good"],
    ),
    "Label Studio": (
        [
            {
                "id": 1,
                "data": {"text": "a"},
                "annotations": [
                    {"result": [{"value": {"choices": ["good"]}, "from_name": "sentiment", "type": "choices"}]}
                ],
            }
        ],
        ["good"],
    ),
    "Label Studio, JSON-MIN": (
        [{"id": 1, "text": "a", "sentiment": "good", "annotation_id": 1, "annotator": 2}],
        ["good"],
    ),
    "chats": ([{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "good"}]}], ["good"]),
    "chats, ShareGPT": (
        [{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "good"}], "id": "x"}],
        ["good"],
    ),
    "spaCy": ([{"text": "a", "ents": [], "cats": {"good": 1.0, "bad": 0.0}}], ["good"]),
}


@pytest.mark.parametrize("form", CLASSES)
def test_classes(tmp_path: Path, form: str) -> None:
    rows, expected = CLASSES[form]
    path = lines(tmp_path, rows)
    assert classes(Classify(data=str(path))) == expected
    several = [{**rows[0]}]
    assert classes(Multilabel(data=str(lines(tmp_path, several)))) == [(expected[0],)]


def test_chats_of_one_turn_and_no_others() -> None:
    asked, answered = {"role": "user", "content": "a"}, {"role": "assistant", "content": "good"}
    rows = [{"messages": [{"role": "system", "content": "Judge."}, asked, answered]}, {"messages": [asked]}]
    [table] = tables(rows).values()
    assert isinstance(table, Table) and table.columns == ("system", "text", "label")
    assert [row.values.get("label") for row in table.rows(Problems(heading=""))] == ["good", None]
    tool, nothing = {"role": "tool", "content": "x"}, {**answered, "content": None}
    for turns in ([asked, answered, asked], [answered], [asked, tool], [asked, nothing]):
        with refusal("unusable-row", "row 1", "turn"):
            classes(with_data(Classify(), [{"messages": turns}] * 2))
    assert not isinstance(tables([{"text": "b", "label": "c", "messages": [asked]}])["all"], AnnotatedTable)


@pytest.mark.parametrize("form", ["doccano", "Label Studio", "Prodigy"])
def test_places_behind_an_emoji(tmp_path: Path, form: str) -> None:
    def record(start: int, end: int) -> dict[str, Any]:
        span = {"start": start, "end": end, "label": "ORG"}
        value = {"start": start, "end": end, "text": "EU", "labels": ["ORG"]}
        result = {"value": value, "from_name": "label", "to_name": "text", "type": "labels"}
        return {
            "doccano": {"id": 1, "text": EMOJI, "label": [[start, end, "ORG"]]},
            "Prodigy": {"text": EMOJI, "spans": [span], "answer": "accept"},
            "Label Studio": {"data": {"text": EMOJI}, "annotations": [{"result": [result]}]},
        }[form]

    assert entities(lines(tmp_path, [record(3, 5)])) == [[("EU", "ORG")]]
    if form != "Prodigy":
        assert entities(lines(tmp_path, [record(5, 7)])) == [[("EU", "ORG")]]


def test_what_nobody_has_marked_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        *ENTITIES["Prodigy"],
        {"text": "rejected", "spans": [{"start": 0, "end": 3, "label": "ORG"}], "answer": "reject"},
        {"text": "ignored", "spans": [], "answer": "ignore"},
    ]
    found = tagged(lines(tmp_path, rows))
    assert len(found.sentences) == 1 and found.unlabelled == [2, 3] and "line 2" in found.describe()
    assert len(tagged(lines(tmp_path, rows), labelled=False).sentences) == 3
    with refusal("missing-label", "line 2"):
        classes(
            Classify(
                data=str(
                    lines(
                        tmp_path,
                        [
                            {"text": "a", "accept": ["x"], "options": [], "answer": "accept"},
                            {"text": "b", "accept": ["y"], "options": [], "answer": "ignore"},
                        ],
                    )
                )
            )
        )


@pytest.mark.parametrize(
    ("record", "value"),
    [
        ({"id": 1, "text": "ab", "label": [[0, 9, "ORG"]]}, "9"),
        ({"id": 1, "text": "ab", "label": [[0, "1", "ORG"]]}, "'1'"),
        ({"id": 1, "text": "ab", "label": [[0, 1]]}, "[0, 1]"),
        ({"id": 1, "text": "ab", "label": [[0, 1, ""]]}, "label"),
        ({"text": "ab", "spans": [{"start": 0}], "answer": "accept"}, "None"),
        ({"text": "ab", "spans": ["x"], "answer": "accept"}, "'x'"),
        ({"text": "ab", "spans": 7, "answer": "accept"}, "7"),
        ({"data": {"text": "ab"}, "annotations": [{"result": [3]}]}, "3"),
        ({"data": {"text": "ab"}, "annotations": [{"result": [{"value": {"start": "x", "labels": ["A"]}}]}]}, "'x'"),
        ({"data": {"text": "ab c"}, "annotations": [{"result": [{"value": MOVED}]}]}, "'c'"),
        ({"text": "ab c", "label": [MOVED], "annotation_id": 1, "annotator": 2}, "'c'"),
        ({"text": "ab", "ents": [[5]]}, "[5]"),
        ({"text": "ab", "ents": [], "cats": {"x": "y"}}, "'x'"),
        ({"paragraphs": [{"sentences": [{"tokens": [{"orth": "a", "ner": "Q-X"}]}]}]}, "Q-X"),
        ({"paragraphs": [{"raw": "b", "sentences": [{"tokens": [{"orth": "a", "ner": "U-X"}]}]}]}, "'a'"),
    ],
)
def test_records_that_cannot_be_read_are_told_with_their_lines(
    tmp_path: Path, record: dict[str, Any], value: str
) -> None:
    good = {"text": TEXT, "spans": [], "answer": "accept"} if "spans" in record else record
    path = lines(tmp_path, [good, record])
    with refusal("unusable-row", path, "line 2", value):
        tagged(path)
    with refusal("unusable-row", path, "record 2", value):
        tagged(array(tmp_path, [good, record], "in.jsonl"))


def test_control_characters_in_a_label_stay_on_one_line(tmp_path: Path) -> None:
    path = lines(tmp_path, [{"id": 1, "text": "ab", "label": [[0, 9, "X\nerror: y"]]}])
    with refusal("unusable-row", r"X\nerror: y") as raised:
        tagged(path)
    assert "\nerror" not in str(raised.value)
