"""Annotation tools' records: what is read of them by every task, and what predictions become in them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.errors import Problems
from osbert.reading.annotated import AnnotatedTable
from osbert.reading.memory import tables
from osbert.reading.record_forms.contract import Mark, Suggestion
from osbert.reading.table import open_table
from osbert.reading.tagged.files import TaggedFile, TagReading, read_tagged
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.multilabel import Multilabel
from refusals import refusal

TEXT = "EU rejects German call"
EMOJI = "🙂🙂 EU rejects"
Rows = Sequence[Mapping[str, Any]]


def lines(folder: Path, rows: Rows, name: str = "in.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def array(folder: Path, rows: Sequence[Any], name: str = "in.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=2))
    return path


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


ENTITIES: dict[str, list[dict[str, Any]]] = {
    "doccano, labels": [{"id": 1, "text": TEXT, "labels": [[0, 2, "ORG"], [11, 17, "MISC"]]}],
    "doccano, annotations": [
        {
            "id": 1,
            "text": TEXT,
            "annotations": [
                {"id": 3, "label": "ORG", "start_offset": 0, "end_offset": 2, "user": 1},
                {"id": 4, "label": "MISC", "start_offset": 11, "end_offset": 17, "user": 1},
            ],
            "meta": {},
            "annotation_approver": None,
        }
    ],
    "doccano, new": [{"id": 1, "text": TEXT, "label": [[11, 17, "MISC"], [0, 2, "ORG"]], "Comments": []}],
    "doccano, relations": [
        {
            "id": 1,
            "text": TEXT,
            "relations": [{"id": 9, "from_id": 1, "to_id": 2, "type": "rejects"}],
            "entities": [
                {"id": 1, "label": "ORG", "start_offset": 0, "end_offset": 2},
                {"id": 2, "label": "MISC", "start_offset": 11, "end_offset": 17},
            ],
        }
    ],
    "Prodigy": [
        {
            "text": TEXT,
            "tokens": [{"text": "EU", "start": 0, "end": 2, "id": 0}],
            "spans": [
                {"start": 0, "end": 2, "label": "ORG", "token_start": 0, "token_end": 0},
                {"start": 11, "end": 17, "label": "MISC"},
            ],
            "answer": "accept",
            "_input_hash": 1,
            "_task_hash": 2,
        }
    ],
    "Label Studio": [
        {
            "id": 7,
            "data": {"text": TEXT, "source": "x"},
            "annotations": [
                {"was_cancelled": True, "result": []},
                {
                    "was_cancelled": False,
                    "result": [
                        {
                            "value": {"start": 0, "end": 2, "text": "EU", "labels": ["ORG"]},
                            "from_name": "ner",
                            "to_name": "words",
                            "type": "labels",
                        },
                        {
                            "value": {"start": 11, "end": 17, "text": "German", "labels": ["MISC"]},
                            "from_name": "ner",
                            "to_name": "words",
                            "type": "labels",
                        },
                    ],
                },
            ],
            "predictions": [],
        }
    ],
    "Label Studio, JSON-MIN": [
        {
            "id": 7,
            "text": TEXT,
            "label": [
                {"start": 0, "end": 2, "text": "EU", "labels": ["ORG"]},
                {"start": 11, "end": 17, "text": "German", "labels": ["MISC"]},
            ],
            "annotator": 1,
            "annotation_id": 5,
            "lead_time": 3.2,
        }
    ],
    "spaCy, to_json": [
        {
            "text": TEXT,
            "ents": [{"start": 0, "end": 2, "label": "ORG"}, {"start": 11, "end": 17, "label": "MISC"}],
            "tokens": [{"id": 0, "start": 0, "end": 2}],
        }
    ],
    "spaCy, version 2": [
        {
            "id": 0,
            "paragraphs": [
                {
                    "raw": TEXT,
                    "sentences": [
                        {
                            "tokens": [
                                {"id": place, "orth": word, "ner": tag}
                                for place, (word, tag) in enumerate(
                                    zip(TEXT.split(), ["U-ORG", "O", "U-MISC", "O"], strict=True)
                                )
                            ]
                        }
                    ],
                }
            ],
        }
    ],
}


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
    "spaCy": ([{"text": "a", "ents": [], "cats": {"good": 1.0, "bad": 0.0}}], ["good"]),
}


@pytest.mark.parametrize("form", CLASSES)
def test_classes(tmp_path: Path, form: str) -> None:
    rows, expected = CLASSES[form]
    path = lines(tmp_path, rows)
    assert classes(Classify(data=str(path))) == expected
    several = [{**rows[0]}]
    assert classes(Multilabel(data=str(lines(tmp_path, several)))) == [(expected[0],)]


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


WORDS = st.sampled_from(["EU", "rejects", "🙂", "漢字", "Müller", "-", "x" * 9])


@st.composite
def suggestions(draw: st.DrawFn) -> tuple[str, tuple[Mark, ...]]:
    """Draw a text of words, and entities of some of them that do not overlap."""
    words = draw(st.lists(WORDS, min_size=1, max_size=6))
    marks, place = [], 0
    for word in words:
        if draw(st.booleans()):
            marks.append(Mark(place, place + len(word), draw(st.sampled_from(["ORG", "PER"])), 0.5))
        place += len(word) + 1
    return " ".join(words), tuple(marks)


@given(suggestions())
def test_predictions_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[str, tuple[Mark, ...]]
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
        filled = table.form.filled(record, Suggestion(marks=marks))
        assert filled is not None
        if "data" in filled:  # predictions become annotations when a person accepts them
            filled = {**filled, "annotations": filled["predictions"]}
        [row] = table.form.read({**filled, "answer": "accept"} if "_input_hash" in filled else filled)
        assert [tuple(one) for one in row.get("entities") or []] == [(one.start, one.end, one.type) for one in marks]


def test_what_a_person_marked_stays(tmp_path: Path) -> None:
    said = Suggestion(marks=(Mark(3, 10, "X", 0.5),))
    for form in ("doccano, labels", "doccano, relations", "Prodigy"):
        [record] = ENTITIES[form]
        table = open_table(lines(tmp_path, [record]))
        assert isinstance(table, AnnotatedTable) and table.form.filled(record, said) == record
    [task] = ENTITIES["Label Studio"]
    table = open_table(lines(tmp_path, [task]))
    assert isinstance(table, AnnotatedTable)
    filled = table.form.filled(task, said)
    assert filled is not None and filled["annotations"] == task["annotations"]
    [prediction] = filled["predictions"]
    [result] = prediction["result"]
    assert (result["from_name"], result["to_name"], result["type"]) == ("ner", "words", "labels")
    assert result["value"] == {"start": 3, "end": 10, "text": "rejects", "labels": ["X"]} and result["score"] == 0.5


def test_labels_go_to_their_places(tmp_path: Path) -> None:
    one = Suggestion.of({"prediction": "good", "probabilities": {"good": 0.75, "bad": 0.25}})
    several = Suggestion.of({"prediction": ["a", "b"], "probabilities": {"a": 0.9, "b": 0.6, "c": 0.1}})
    assert Suggestion.of({"prediction": 3.5}) == Suggestion() == Suggestion.of({"prediction": None})

    def filled(record: dict[str, Any], said: Suggestion) -> dict[str, Any]:
        table = open_table(lines(tmp_path, [record]))
        assert isinstance(table, AnnotatedTable)
        return table.form.filled(record, said) or {}

    assert filled({"id": 1, "text": "x", "label": [], "Comments": []}, several)["label"] == ["a", "b"]
    prodigy = {"text": "x", "_input_hash": 1, "_task_hash": 2}
    assert filled(prodigy, one) == {"text": "x", "_input_hash": 1, "label": "good", "score": 0.75}
    choice = filled(prodigy, several)
    assert choice["accept"] == ["a", "b"] and [option["id"] for option in choice["options"]] == ["a", "b", "c"]
    task = filled({"data": {"text": "x"}, "predictions": []}, one)
    [prediction] = task["predictions"]
    assert prediction["score"] == 0.75 and prediction["result"][0]["value"] == {"choices": ["good"]}
