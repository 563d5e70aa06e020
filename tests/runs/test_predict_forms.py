"""Predictions in the form of the file that was read: annotation tools' records, arrays, brat's standoff."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny_runs
from osbert.errors import Problems
from osbert.reading.tagged.files import TagReading, read_tagged
from osbert.runs.predict.output import PredictionOutput
from osbert.runs.predict.run import predict_file
from refusals import refusal

TEXT = "🙂 a good film, the bad actor plays"


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write_run(tmp_path_factory.mktemp("runs") / "tagger", tiny_runs.TASKS["tagger"])


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write_run(tmp_path_factory.mktemp("runs") / "classifier", tiny_runs.TASKS["classifier"])


def predicted(run: Path, file: Path, out: str) -> Path:
    path = file.with_name(out)
    predict_file(run, file, output=PredictionOutput(path=path))
    return path


def found(run: Path, folder: Path) -> list[tuple[int, int, str]]:
    """Return the entities that a run finds in the text, from plain JSON lines."""
    (folder / "plain.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
    line = json.loads(predicted(run, folder / "plain.jsonl", "plain-out.jsonl").read_text())
    assert line["prediction"], "a tagger that finds nothing tests nothing"
    return [(one["start"], one["end"], one["type"]) for one in line["prediction"]]


RECORDS: dict[str, dict[str, Any]] = {
    "doccano": {"id": 1, "text": TEXT, "label": [], "Comments": []},
    "Prodigy": {"text": TEXT, "_input_hash": 1, "tokens": [{"text": "🙂", "start": 0, "end": 1, "id": 0}]},
    "Label Studio": {"id": 1, "data": {"text": TEXT}, "annotations": [], "predictions": []},
}


@pytest.mark.parametrize("form", RECORDS)
@pytest.mark.parametrize("array", [False, True])
def test_entities_are_read_back_from_the_file_they_are_written_to(
    tagger: Path, tmp_path: Path, form: str, array: bool
) -> None:
    expected = found(tagger, tmp_path)
    path = tmp_path / ("in.json" if array else "in.jsonl")
    records = [RECORDS[form], RECORDS[form]]
    path.write_text(json.dumps(records) if array else "".join(json.dumps(one) + "\n" for one in records))
    out = predicted(tagger, path, f"out{path.suffix}")
    text = out.read_text()
    written = json.loads(text) if array else [json.loads(line) for line in text.splitlines()]
    assert len(written) == 2
    if form == "Label Studio":
        assert [*written[0]] == [*RECORDS[form]]
        written = [{**one, "annotations": one["predictions"], "predictions": []} for one in written]
    else:
        assert len(written[0]["prediction"]) == len(expected)
    again = tmp_path / "again.jsonl"
    again.write_text("".join(json.dumps({**one, "answer": "accept"}) + "\n" for one in written))
    tagged = read_tagged(again, TagReading(), problems := Problems(heading=""), labelled=True)
    assert not problems.messages and tagged.form.startswith(form) and len(tagged.sentences) == 2
    for sentence in tagged.sentences:
        spans = [
            (sentence.words[one.start][0], sentence.words[one.end - 1][1], one.type) for one in sentence.spans or ()
        ]
        assert spans == expected


def test_a_document_of_brat_gets_its_ann_file(tagger: Path, tmp_path: Path) -> None:
    (tmp_path / "doc.txt").write_text(TEXT)
    (tmp_path / "doc.ann").write_text("")
    expected = found(tagger, tmp_path)
    out = predicted(tagger, tmp_path / "doc.ann", "new.ann")
    (tmp_path / "new.txt").write_text(TEXT)
    tagged = read_tagged(out, TagReading(), Problems(heading=""), labelled=True)
    [sentence] = tagged.sentences
    assert [one.type for one in sentence.spans or ()] == [type_ for _, _, type_ in expected]
    folder = tmp_path / "set"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(TEXT)
        (folder / f"{name}.ann").write_text("")
    with refusal("unknown-output-format", folder):
        predicted(tagger, folder, "set.ann")
    lines = [json.loads(line) for line in predicted(tagger, folder, "set.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines] == ["a", "b"] and all(line["prediction"] for line in lines)


def test_classes_go_to_their_places(classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"id": 1, "data": {"text": "good"}, "predictions": []}]))
    [task] = json.loads(predicted(classifier, path, "out.json").read_text())
    [label] = task["predictions"][0]["result"][0]["value"]["choices"]
    assert label in ("neg", "pos") and 0 < task["predictions"][0]["score"] <= 1
    path.write_text(json.dumps([{"text": "good"}, {"text": ""}]))
    first, second = json.loads(predicted(classifier, path, "out.json").read_text())
    assert first["prediction"] == label and second == {
        "text": "",
        "prediction": None,
        "probabilities": None,
        "truncated": 0,
    }
    row = {"id": 1, "text": "good", "sentiment": "pos", "annotation_id": 3, "annotator": 2}
    path.write_text(json.dumps([row]))
    [line] = json.loads(predicted(classifier, path, "out.json").read_text())
    assert {name: line[name] for name in row} == row and line["prediction"] == label
    cells = predicted(classifier, path, "out.csv").read_text().splitlines()
    assert cells[0].startswith("id,text,sentiment,prediction,")
