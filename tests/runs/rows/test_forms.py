"""Predictions in the form of the file that was read: annotation tools' records, arrays, brat's standoff."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import tiny_runs
from osbert.errors import Problems
from osbert.reading.data_file import DataFile
from osbert.reading.parquet import read_rows
from osbert.reading.tagged.files import TagReading, read_tagged
from osbert.runs.contract import Notice, WorkProgress
from osbert.runs.rows.output import RowOutput
from osbert.runs.rows.predict import predict_file
from osbert.runs.rows.prediction_settings import PredictionOptions
from refusals import refusal

TEXT = "🙂 a good film, the bad actor plays"


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write_run(tmp_path_factory.mktemp("runs") / "tagger", tiny_runs.TASKS["tagger"])


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write_run(tmp_path_factory.mktemp("runs") / "classifier", tiny_runs.TASKS["classifier"])


def predicted(run: Path, file: Path, out: str, **options: Any) -> Path:
    path = file.with_name(out)
    predict_file(run, file, output=RowOutput(path=path), written=PredictionOptions(**options))
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


@pytest.mark.lab
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


def test_json_lines_keep_the_line_ends_of_their_input(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"text\r\ngood\r\n")
    assert b"\r" not in predicted(classifier, tmp_path / "in.csv", "of-csv.jsonl").read_bytes()
    for record in ({"text": "good"}, RECORDS["doccano"]):
        (tmp_path / "in.jsonl").write_bytes(2 * (json.dumps(record).encode() + b"\r\n"))
        lines = predicted(classifier, tmp_path / "in.jsonl", "out.jsonl").read_bytes().split(b"\r\n")
        assert len(lines) == 3 and b"\n" not in b"".join(lines) and json.loads(lines[1])["text"] == record["text"]


@pytest.mark.lab
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


@pytest.mark.lab
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


@pytest.mark.lab
def test_a_task_without_an_answer_stays_as_it_is(classifier: Path, tmp_path: Path) -> None:
    tasks = [{"id": n, "data": {"text": text}, "annotations": []} for n, text in enumerate(("good", " "))]
    path = tmp_path / "in.json"
    path.write_text(json.dumps(tasks))
    answered, empty = json.loads(predicted(classifier, path, "out.json").read_text())
    assert len(answered["predictions"]) == 1 and empty == tasks[1]
    withheld = json.loads(predicted(classifier, path, "none.json", abstain=1.0).read_text())
    assert withheld == [tasks[0] | {"abstained": 1}, tasks[1] | {"abstained": 0}]


@pytest.mark.lab
def test_options_have_a_place_in_every_form_or_are_refused(tagger: Path, classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"id": 1, "data": {"text": "good"}, "predictions": []}]))
    [task] = json.loads(predicted(classifier, path, "out.json", top_k=1, abstain=0.1).read_text())
    [label] = task["predictions"][0]["result"][0]["value"]["choices"]
    assert [one["value"] for one in task["top"]] == [label] == [task["prediction"]] and task["abstained"] == 0
    (tmp_path / "doc.txt").write_text(TEXT)
    (tmp_path / "doc.ann").write_text("")
    with refusal("options-exclude-each-other", "--top-k", "ann"):
        predicted(tagger, tmp_path / "doc.ann", "new.ann", top_k=1)
    with refusal("unknown-output-format", "classify"):  # whose .ann file would be empty
        predicted(classifier, tmp_path / "doc.ann", "new.ann")


def test_only_an_array_is_written_as_one(classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps([{"text": "good"}, {"text": "bad"}], indent=1))
    assert len(json.loads(predicted(classifier, path, "out.jsonl").read_text())) == 2
    lines = predicted(classifier, path, "lines.jsonl", out_form="jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["good", "bad"]


def test_what_a_record_holds_is_not_replaced(classifier: Path, tmp_path: Path) -> None:
    for first in ({"text": "good", "ents": []}, {"text": "good"}):
        path = tmp_path / "in.jsonl"
        rows = [first] * 1001 + [{**first, "prediction": "mine"}]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        *_, line = predicted(classifier, path, "out.jsonl").read_text().splitlines()
        assert json.loads(line)["prediction"] == "mine" and json.loads(line)["prediction 2"] in ("neg", "pos")
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"text": "good"}] * 1001 + [{"text": "bad", "late": "kept"}]))
    header, *_, last = predicted(classifier, path, "out.csv").read_text().splitlines()
    assert header.startswith("text,late,") and last.startswith("bad,kept,")


@pytest.mark.lab
def test_an_output_may_lie_among_the_documents(tagger: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXT)
    (folder / "a.ann").write_text("")
    before = DataFile(folder)
    assert before.sha256
    (folder / ".out.jsonl.lock").write_text("another process")
    before.require_same(whole=True)
    predict_file(tagger, folder, output=RowOutput(path=folder / "out.jsonl"))
    assert json.loads((folder / "out.jsonl").read_text())["prediction"]


def test_parquet_keeps_the_names_of_its_classes(classifier: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    told = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pyarrow.table({"text": ["good"], "label": [1]}).replace_schema_metadata(told)
    parquet.write_table(table, path := tmp_path / "in.parquet")
    out = predicted(classifier, path, "out.parquet")
    assert parquet.read_table(out).column("label").to_pylist() == [1]
    assert [row["label"] for row in read_rows(DataFile(out))] == ["pos"]


@pytest.mark.lab
@pytest.mark.parametrize("record", [{"text": TEXT}, *RECORDS.values()], ids=["plain", *RECORDS])
def test_an_array_that_is_stopped_ends_in_the_same_bytes_from_wherever_it_comes(
    tagger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any]
) -> None:
    monkeypatch.setattr("osbert.runs.rows.predict.TEXTS", 2)
    content = json.dumps([{**record, "id": number} for number in range(7)]).encode()
    (path := tmp_path / "in.json.gz").write_bytes(gzip.compress(content))
    out = tmp_path / "out.json"

    for _ in range(2):
        seen: list[int] = []

        def stop(event: Any, seen: list[int] = seen) -> None:
            if isinstance(event, WorkProgress):
                seen.append(event.done)
                if len(seen) == 2:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            predict_file(tagger, path, output=RowOutput(path=out), watch=stop)
        with (tmp_path / "out.json.unfinished" / "rows.bin").open("ab") as rows:
            rows.write(b",\n{")
    predicted(tagger, path, out.name)
    whole = predicted(tagger, path, "whole.json")
    assert out.read_bytes() == whole.read_bytes()
    assert [one["id"] for one in json.loads(whole.read_text())] == [*range(7)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    stream = io.StringIO()
    predict_file(tagger, Path("-"), output=RowOutput(path=Path("-"), stream=stream))
    assert stream.getvalue() == whole.read_text()


def test_fields_that_get_no_column_are_told(classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "good"}\n' * 1001 + '{"text": "bad", "late": "lost"}\n')
    events: list[Any] = []
    for form in ("csv", "jsonl"):
        output = RowOutput(path=tmp_path / f"out.{form}")
        predict_file(classifier, path, output=output, watch=events.append)
    [warning] = [event.text for event in events if isinstance(event, Notice) and event.warning]
    assert "'late'" in warning and "line 1002" in warning


@pytest.mark.lab
def test_rows_without_words_and_records_of_several_rows(tagger: Path, classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"tokens": ["good", "film"]}, {"tokens": []}]))
    first, second = json.loads(predicted(tagger, path, "out.json").read_text())
    assert first["prediction"] is not None and second["prediction"] is None
    path.write_text(json.dumps([{"paragraphs": [{"raw": raw, "sentences": []} for raw in ("good", "bad")]}]))
    rows = json.loads(predicted(classifier, path, "out.json").read_text())
    assert [row["text"] for row in rows] == ["good", "bad"] and "paragraphs" not in rows[0]
    for records, told in (([1, 2], "record 2"), ([{"text": "a", "_input_hash": 1, "spans": [{}]}], "whole numbers")):
        path.write_text(json.dumps(records))
        with refusal("unusable-row", told):
            predicted(classifier, path, "out.json")
