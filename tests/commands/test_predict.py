"""osbert predict: one text, and files of every form in their order, with true label names and nothing lost."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.commands.predict import predict
from osbert.errors import Problems, UserError
from osbert.inference.engine import load
from osbert.reading.table import open_table
from osbert.runs.contract import Notice, Watch
from osbert.runs.file_options import FileOptions
from osbert.runs.rows.output import RowOutput
from osbert.runs.rows.predict import predict_file
from osbert.runs.rows.prediction_settings import PredictionOptions
from osbert.tasks.kinds.classify import Classify
from refusals import refusal


def test_one_text(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predict(run, "the good film")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "pos" and lines[1].split()[1] == "pos" and lines[2].split()[1] == "neg"
    predict(run, "film " * 100)
    assert "78 pieces at the end were not read: the run reads 24 tokens" in capsys.readouterr().out


def test_texts_that_the_vocabulary_lacks_are_counted_in_a_warning(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text(
        "text,label\nthe good film,pos\nแมว สุนัข,neg\nกินข้าว film,neg\n,\nbad แมว film,neg\n"
    )
    events: list[Any] = []
    osbert.predict(run, tmp_path / "in.csv", out=tmp_path / "out.csv", watch=events.append)
    [warning] = [event.text for event in events if isinstance(event, Notice) and event.warning]
    assert warning.startswith("1 text ")
    assert [prediction.unknown for prediction in osbert.load(run).predict(["แมว สุนัข", "good film", ""])] == [
        True,
        False,
        False,
    ]
    predict(run, "แมว สุนัข")
    assert "unknown" in capsys.readouterr().out
    events.clear()
    osbert.evaluate(run, data=[("แมว สุนัข", "pos"), ("film bad", "neg")], watch=events.append)
    [warning] = [event.text for event in events if isinstance(event, Notice) and event.warning]
    assert warning.startswith("1 text ")


def test_the_path_of_a_file_is_no_text(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("good", "in.csv"):
        Path(name).write_text("text\na good film\n")
    for path in ("in.csv", str(tmp_path / "good")):
        with refusal("missing-option", path, "--file"):
            predict(run, path)
    for text in ("good", "in.csv ", "good film.csv"):
        predict(run, text)
        assert capsys.readouterr().out


def test_a_file_keeps_its_order_and_columns(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.runs.rows.predict.TEXTS", 3)  # several chunks
    texts = ["the good film", "a bad film", "", "fine, good actor", "poor " * 40, "good", "film bad", "poor"]
    with (tmp_path / "in.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "truncated"])
        writer.writerows([number, text, "x"] for number, text in enumerate(texts))
    predict(run, file=tmp_path / "in.csv", out=tmp_path / "new" / "out.csv")
    with (tmp_path / "new" / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == texts
    assert [row["prediction"] for row in rows] == ["pos", "neg", "", "pos", "neg", "pos", "neg", "neg"]
    assert [row["truncated"] for row in rows] == ["x"] * 8
    assert [row["truncated 2"] for row in rows] == ["0", "0", "", "0", "18", "0", "0", "0"]
    expected = load(run).predict([text for text in texts if text])
    found = [float(row["probability of pos"]) for row in rows if row["text"]]
    assert found == pytest.approx([one.probabilities["pos"] for one in expected], abs=2e-6)
    assert not list(tmp_path.rglob(".*.part"))


def test_json_lines_keep_their_objects_halves_of_signs_included(run: Path, tmp_path: Path) -> None:
    rows = [
        {"text": "good film", "more": {"a": [1]}, "label": "unheard of"},
        {"text": "bad", "n": "\ud83d"},
        {"text": None},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    predict(run, file=tmp_path / "in.jsonl", out=tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [{key: row[key] for key in before} for row, before in zip(found, rows)] == rows
    assert [row["prediction"] for row in found] == ["pos", "neg", None]
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1) and found[2]["probabilities"] is None


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", '[1, {"of": NaN}]'])
@pytest.mark.parametrize("array", [False, True])
def test_numbers_that_json_has_not_are_null_and_named(run: Path, tmp_path: Path, number: str, array: bool) -> None:
    objects = ['{"text": "a film", "weight": 1}', f'{{"text": "a good film", "weight": {number}}}']
    (tmp_path / "in.json").write_text(f"[{','.join(objects)}]" if array else "\n".join(objects))
    notices: list[str] = []
    rows = predict_file(run, tmp_path / "in.json", output=RowOutput(path=tmp_path / "out.jsonl"), watch=_keep(notices))
    found = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows.rows == 2 and found[0]["weight"] == 1 and found[1]["weight"] in (None, [1, {"of": None}])
    assert [text for text in notices if "'weight'" in text and "2" in text]
    predict_file(run, tmp_path / "in.json", output=RowOutput(path=tmp_path / "out.csv"), watch=_keep(notices))
    assert sum("'weight'" in text and "null" in text for text in notices) == 1  # of the JSON alone


def _keep(notices: list[str]) -> Watch:
    def watch(event: object) -> None:
        if isinstance(event, Notice) and event.warning:
            notices.append(event.text)

    return watch


def test_plain_lines_and_standard_output(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("good film\nbad, film\n")
    predict(run, file=tmp_path / "in.txt")
    captured = capsys.readouterr()
    rows = list(csv.DictReader(captured.out.splitlines()))
    assert [(row["text"], row["prediction"]) for row in rows] == [("good film", "pos"), ("bad, film", "neg")]
    assert "one text a line" in captured.err and "2 rows" in captured.err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.txt", "good film\n\nbad\n   \n\n"),
        ("in.csv", "text\ngood film\n\nbad\n   \n\n"),
        ("in.csv", 'text\ngood film\n""\nbad\n\n\n'),
        ("in.csv", "sep=;\ntext\ngood film\n\nbad\n\n\n"),
    ],
)
@pytest.mark.parametrize("out", ["out.csv", "out.tsv", "out.jsonl"])
def test_a_row_in_is_a_row_out(run: Path, tmp_path: Path, name: str, content: str, out: str) -> None:
    (tmp_path / name).write_text(content)
    predict(run, file=tmp_path / name, out=tmp_path / out)
    said = [row.values["prediction"] for row in open_table(tmp_path / out).rows(Problems(heading=""))]
    assert said == ["pos", "", "neg", "", ""]


@pytest.mark.parametrize(
    ("name", "content", "out", "start"),
    [
        ("in.csv", "text;n\ngood;1\n", "out.csv", b"text;n;prediction;"),
        ("in.csv", "\ufefftext;n\r\ngood;1\r\n", "out.csv", b"\xef\xbb\xbftext;n;prediction;"),
        ("in.csv", "sep=;\r\ntext;n\r\ngood;1\r\n", "out.csv", b"sep=;\r\ntext;n;prediction;"),
        ("in.csv", "text\tn\ngood\t1\n", "out.csv", b"text\tn\tprediction\t"),
        ("in.csv", "text;n\ngood;1\n", "out.tsv", b"text\tn\tprediction\t"),
        ("in.tsv", "text\tn\ngood\t1\n", "out.csv", b"text,n,prediction,"),
        ("in.tsv", "\ufefftext\tn\r\ngood\t1\n", "out.tsv", b"\xef\xbb\xbftext\tn\tprediction\t"),
        ("in.jsonl", '{"text": "good", "n": 1}\n', "out.csv", b"text,n,prediction,"),
    ],
)
def test_cells_are_written_as_they_came(
    run: Path, tmp_path: Path, name: str, content: str, out: str, start: bytes
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    predict(run, file=tmp_path / name, out=tmp_path / out)
    written = (tmp_path / out).read_bytes()
    assert written.startswith(start)
    windows = name.endswith(out[-4:]) and "\r\n" in content
    assert written.count(b"\r\n") == (written.count(b"\n") if windows else 0)
    again = open_table(tmp_path / out)
    assert [(row.values["text"], row.values["prediction"]) for row in again.rows(Problems(heading=""))] == [
        ("good", "pos")
    ]


@pytest.mark.parametrize("out", ["out.csv", "out.tsv"])
def test_line_ends_in_cells_make_no_rows(run: Path, tmp_path: Path, out: str) -> None:
    cells = ["good\rfilm", "good\nfilm", "good\r\nfilm", "\r", "plain", 'a "quote"']
    rows = [{"text": "good", "more": cell} for cell in cells]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict(run, file=tmp_path / "in.jsonl", out=tmp_path / out)
    with (tmp_path / out).open(newline="") as file:
        found = list(csv.DictReader(file, delimiter="\t" if out.endswith("tsv") else ","))
    assert [row["more"] for row in found] == cells and {row["prediction"] for row in found} == {"pos"}
    written = (tmp_path / out).read_bytes()
    assert written.count(b"\r\n") == 1 and b"plain" in written and b'"plain"' not in written


def test_every_bad_row_is_told_before_anything_is_written(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,id\ngood,1\nbad\nfine,2,3\n")
    with refusal("unusable-row", "line 3: 1", "line 4: 3"):
        predict(run, file=tmp_path / "in.csv", out=tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_columns_by_word_of_the_user(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b\ngood,bad\n")
    with refusal("unknown-column"):
        predict(run, file=tmp_path / "in.csv", out=tmp_path / "out.csv")
    predict(run, file=tmp_path / "in.csv", out=tmp_path / "out.tsv", options=FileOptions(text="b"))
    assert (tmp_path / "out.tsv").read_text().splitlines()[1].split("\t")[2] == "neg"


def test_wrong_usage(run: Path, encoder: Path, tmp_path: Path) -> None:
    with refusal("empty-text"):
        predict(run, " ")
    (tmp_path / "in.csv").write_text("text\ngood\n")
    for arguments, options in (((), {}), (("good",), {"file": tmp_path / "in.csv"})):
        with refusal("missing-option"):
            predict(run, *arguments, **options)
    with refusal("options-exclude-each-other", "--file"):
        predict(run, "good", out=tmp_path / "out.csv")
    with refusal("unknown-output-format"):
        predict(run, file=tmp_path / "in.csv", out=tmp_path / "out.ods")
    with refusal("not-a-model"):
        predict(encoder, "good")
    with refusal("wrong-number-of-texts"):
        predict(run, "good", "film")
    engine = load(run)
    assert isinstance(engine.task, Classify)
    engine.task = dataclasses.replace(engine.task, pair="other")
    with refusal("wrong-number-of-texts"):
        engine.predict([("good", "film"), "good"])
    assert len(engine.predict([("good", "film")])) == 1


def test_formulas_become_texts_for_spreadsheets(run: Path, tmp_path: Path) -> None:
    formulas = ["=1+2 good", "+good", "-bad", "@bad", "\tgood", "\uff1d1+2", "\uff20bad", " =1+2", "\u3000\uff0bgood"]
    texts = [*formulas, "\u200b=1", "good = bad", "-3.5", "+1e3", " -3", "\u00a0good"]
    with (tmp_path / "in.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "=name"])
        writer.writerows([text, text] for text in texts)
    safe = PredictionOptions(spreadsheet_safe=True)
    for name in ("out.csv", "out.tsv"):
        predict(run, file=tmp_path / "in.csv", out=tmp_path / name, written=safe)
        with (tmp_path / name).open(newline="") as file:
            header, *rows = csv.reader(file, delimiter="\t" if name == "out.tsv" else ",")
        assert header[:2] == ["text", "'=name"]
        guarded = [f"'{text}" for text in texts[:10]]
        assert [row[1] for row in rows] == [*guarded, *texts[10:]]
        assert all(float(row[3]) >= 0 for row in rows)
    predict(run, file=tmp_path / "in.csv", out=tmp_path / "plain.csv")
    with (tmp_path / "plain.csv").open(newline="") as file:
        assert [row[1] for row in csv.reader(file)][1:] == texts
    with refusal("options-exclude-each-other", "--spreadsheet-safe"):
        predict(run, file=tmp_path / "in.csv", out=tmp_path / "out.jsonl", written=safe)
    with pytest.raises(UserError):
        predict(run, "a text", written=safe)
