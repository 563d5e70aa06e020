"""osbert predict --labels: one text, files with labels of all rows and of each, stopped and stdin; finetune mnli."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.commands.predict import predict
from osbert.inference.engine import load
from osbert.inference.label_settings import LabelOptions, read_labels, spell_labels
from osbert.runs.contract import WorkProgress
from osbert.runs.rows.prediction_settings import PredictionOptions
from osbert.tasks.kinds.classify import Classify
from refusals import refusal
from tiny_runs import write_run

ROWS = [
    {"text": "a good film", "own": "good,bad"},
    {"text": "the bad play", "own": '["poor", "a good film", "fine"]'},
    {"text": "", "own": ""},
    {"text": "poor actor", "own": "film\ta good film,play"},
]
NAMES = ["film", "play", "good", "bad", "the"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["text", "own"])
        writer.writeheader()
        writer.writerows(ROWS)
    return tmp_path / "rows.csv"


def test_one_text(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    predict(runs["pretrained"], "a film", naming=LabelOptions(labels='good,"bad play"'))
    said = capsys.readouterr()
    assert {line.split(maxsplit=1)[1] for line in said.out.splitlines()[1:]} == {"good", "bad play"}
    assert said.err.count("\n") == 1 and "classes by name" in said.err
    with refusal("missing-value"):
        predict(runs["pretrained"], "a film", naming=LabelOptions(multi=True))
    with refusal("invalid-value", "quote"):
        predict(runs["pretrained"], "a film", naming=LabelOptions(labels='good,"bad play'))


def test_files_of_labels(tmp_path: Path) -> None:
    for name, content in (
        ("labels.txt", "refund, late\tMoney comes late.\r\n\nother\n"),
        ("labels.csv", 'label,description\n"refund, late",Money comes late.\nother\n'),
        ("bom.txt", "\ufeffrefund, late\tMoney comes late.\nother"),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        found = read_labels(str(tmp_path / name), where="labels")
        assert found == (("refund, late", "Money comes late."), ("other", ""))
        assert read_labels(spell_labels(found), where="labels") == found
    (tmp_path / "labels.txt").write_bytes(b"\xff\xfea\n")
    with refusal("wrong-encoding", "labels.txt"):
        read_labels(str(tmp_path / "labels.txt"), where="labels")


def test_a_file_has_the_columns_of_a_classifier(runs: dict[str, Path], rows: Path, tmp_path: Path) -> None:
    predict(runs["pretrained"], file=rows, out=tmp_path / "out.csv", naming=LabelOptions(labels="good,bad"))
    with (tmp_path / "out.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    added = ["prediction", "probability of good", "probability of bad", "truncated"]
    assert [*found[0]] == ["text", "own", *added] and found[2]["prediction"] == ""
    expected = load(runs["pretrained"]).predict([row["text"] for row in ROWS if row["text"]], labels=["good", "bad"])
    written = [float(row["probability of good"]) for row in found if row["text"]]
    assert written == pytest.approx([one.probabilities["good"] for one in expected], abs=2e-6)
    counts = osbert.predict(runs["pretrained"], rows, out=tmp_path / "api.csv", labels=["good", "bad"])
    assert counts.rows == 4 and (tmp_path / "api.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()


def test_rows_with_labels_of_their_own(runs: dict[str, Path], rows: Path, tmp_path: Path) -> None:
    naming = LabelOptions(labels_column="own", labels="fine,poor")
    predict(runs["pretrained"], file=rows, out=tmp_path / "out.jsonl", naming=naming)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    names = [[*row["probabilities"]] if row["probabilities"] else None for row in found]
    assert names[:3] == [["good", "bad"], ["poor", "a good film", "fine"], None]
    options = PredictionOptions(top_k=2)
    predict(runs["pretrained"], file=rows, out=tmp_path / "out.csv", naming=naming, written=options)
    with (tmp_path / "out.csv").open(newline="") as file:
        tops = [{row["top 1"], row["top 2"]} for row in csv.DictReader(file)]
    assert tops[:2] == [{"good", "bad"}, {row["value"] for row in _ranked(found[1])[:2]}]
    with rows.open("a") as file:
        file.write('text,"a,a"\ntext,\ntext,film\ntext,"""a,b"\n')
    with refusal("duplicate-name", "line 6", "line 7", "line 8", "line 9: 'own': ", "quote"):
        predict(runs["pretrained"], file=rows, naming=LabelOptions(labels_column="own"))
    with refusal("unknown-column", "owns"):
        predict(runs["pretrained"], file=rows, naming=LabelOptions(labels_column="owns"))


def _ranked(row: dict[str, Any]) -> list[dict[str, Any]]:
    ranked = sorted(row["probabilities"].items(), key=lambda item: -item[1])
    return [{"value": value, "probability": probability} for value, probability in ranked]


def test_a_stopped_file_goes_on_with_the_same_calibration(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osbert.runs.rows.label_names.SEQUENCES", 40)
    words = ["good", "bad", "fine", "poor", "film"]
    texts = [f"the {words[number % 5]} {words[number % 3]} actor" for number in range(60)]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    call: dict[str, Any] = {"labels": {"film": "", "play": ""}}

    def stop(event: object) -> None:
        if isinstance(event, WorkProgress) and event.done > 30:
            raise KeyboardInterrupt

    whole = osbert.predict(runs["pretrained"], tmp_path / "in.txt", out=tmp_path / "whole.csv", **call)
    with pytest.raises(KeyboardInterrupt):
        osbert.predict(runs["pretrained"], tmp_path / "in.txt", out=tmp_path / "stopped.csv", watch=stop, **call)
    with refusal("begun-with-other-settings", "film", "bad"):
        osbert.predict(runs["pretrained"], tmp_path / "in.txt", out=tmp_path / "stopped.csv", labels=["film", "bad"])
    assert osbert.predict(runs["pretrained"], tmp_path / "in.txt", out=tmp_path / "stopped.csv", **call) == whole
    assert (tmp_path / "stopped.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_windows_hold_as_many_rows_as_their_sequences_allow(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osbert.runs.rows.label_names.SEQUENCES", 8)
    monkeypatch.setattr("osbert.runs.rows.label_names.KEPT", 4)
    nli = Classify(labels=("contradiction", "entailment"), text="one", pair="two")
    entailment = write_run(tmp_path / "nli", nli, words=["a", "film", "play", "good", "bad", "this", "is", "about"])
    (tmp_path / "in.txt").write_text("a film\n" * 9)
    # The name of one piece is read with the text at one mask, with every other such name; entailment reads each alone.
    for model, labels, rows in ((runs["pretrained"], ["film", "play"], 8), (runs["pretrained"], NAMES, 4),
                                (entailment, ["film", "play"], 4), (entailment, NAMES, 2)):  # fmt: skip
        done: list[int] = []
        out = tmp_path / f"{model.name}-{len(labels)}.csv"
        osbert.predict(
            model, tmp_path / "in.txt", out=out, labels=labels, calibrate=False if model != entailment else None,
            watch=lambda event, done=done: done.append(event.done) if isinstance(event, WorkProgress) else None,
        )  # fmt: skip
        assert [count for count in done if count] == [*range(rows, 9, rows), 9], (model, labels)


def test_standard_input(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'text,own\na good film,"good,bad"\n')))
    naming = LabelOptions(labels_column="own")
    predict(runs["pretrained"], file=Path("-"), written=PredictionOptions(form="csv"), naming=naming)
    assert capsys.readouterr().out.startswith("text,own,prediction,truncated\n")


@pytest.mark.lab
def test_a_run_of_mnli_predicts_by_name(encoder: Path, tmp_path: Path) -> None:
    lines = ["sentence1\tsentence2\tgold_label"]
    lines += [f"a {word} film\tthe film\t{label}" for word in ("good", "bad", "poor") * 4
              for label in ("entailment", "neutral", "contradiction")]  # fmt: skip
    for name in ("train", "dev_matched"):
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    run = osbert.finetune("mnli", model=encoder, data=tmp_path, out=tmp_path / "run", epochs=1)
    [prediction] = run.model.predict(["a good film"], labels=["film", "play"], template="the {label}")
    [also] = osbert.load(tmp_path / "run").predict(["a good film"], labels=["film", "play"], template="the {label}")
    assert prediction.probabilities == pytest.approx(also.probabilities) and len(also.probabilities) == 2
