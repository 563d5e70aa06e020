"""osbert evaluate: the scores of training again, and unknown labels with file, line and nearest match."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.commands.evaluate import evaluate
from osbert.commands.finetune import finetune
from osbert.inference.engine import load as load_engine
from osbert.reading.tagged.schemes import EntitySpan
from osbert.runs.contract import Notice
from osbert.runs.evaluate import Evaluation
from osbert.runs.file_options import LabelledOptions
from osbert.runs.json_lines import plain
from osbert.runs.seen_texts import seen_texts, sketch
from osbert.tasks import Prediction, Record, load
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.tag import Tag
from osbert.tasks.kinds.tag.passages import EntityPrediction
from refusals import refusal


def test_the_development_rows_score_as_in_training(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, rows = load(Classify(data=str(table)), ("train", "dev"))
    (tmp_path / "dev.csv").write_text("text,label\n" + "".join(f"{r.texts[0]},{r.label}\n" for r in rows["dev"]))
    evaluate(run, data=tmp_path / "dev.csv")
    said = capsys.readouterr().out
    metrics = json.loads((run / "run.json").read_text())["finished"]["best"]["metrics"]
    for name, value in metrics.items():
        assert f"{name}" in said and f"{value:.4f}" in said
    assert "true \\ predicted" in said and "20 rows" in said


def test_rows_that_the_run_was_trained_on_are_named(run: Path, table: Path) -> None:
    events: list[Any] = []
    osbert.evaluate(run, data=table, watch=events.append)
    [warning] = [event.text for event in events if isinstance(event, Notice) and event.warning]
    assert "of 200 rows" in warning
    events.clear()
    osbert.evaluate(run, data=[("film good a the bad", "pos")], watch=events.append)
    assert not any(event.warning for event in events if isinstance(event, Notice))


def test_sketches_of_pairs_are_known_in_any_order_and_from_earlier_versions() -> None:
    pairs = [Record(number=0, texts=("The b text", "an a text")), Record(number=1, texts=("x", "y"))]
    swapped = [Record(number=pair.number, texts=pair.texts[::-1]) for pair in pairs]
    assert seen_texts(sketch(pairs), pairs) == seen_texts(sketch(pairs), swapped) != ""
    assert seen_texts("MLgVxQi2zN7Kdr1+c7P0/A==", pairs) == seen_texts(sketch(pairs), pairs)  # stored by 0.1


def test_a_sketch_of_many_texts_tells_the_fraction_that_was_seen() -> None:
    rows = [Record(number=number, texts=(f"text {number}",)) for number in range(20_000)]
    known = sketch(rows[:10_000])
    assert len(known) < 12_000
    assert "about 100%" in seen_texts(known, rows[:5000])
    assert not seen_texts(known, rows[10_000:]) and not seen_texts("", rows) and not seen_texts("no base64", rows)
    half = re.search(r"about (\d+)%", seen_texts(known, rows))
    assert half and 45 <= int(half[1]) <= 55


def test_a_confusion_table(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.tsv").write_text("label\tsentence\npos\tgood\nneg\tgood\nneg\tbad\nneg\tpoor film\n")
    evaluate(run, data=tmp_path / "new.tsv")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["neg", "2", "1"] in lines and ["pos", "0", "1"] in lines and ["accuracy", "0.7500"] in lines


def test_decimal_commas_where_it_is_in_doubt(encoder: Path, settings: tuple[str, ...], tmp_path: Path) -> None:
    rows = "".join(f"the {word} film;{score}\n" for word, score in (("good", "3,5"), ("fine", "2"), ("bad", "0,25")))
    (tmp_path / "train.csv").write_text("text;score\n" + rows * 10)
    finetune("regress", *settings, model=encoder, data=tmp_path / "train.csv", out=tmp_path / "run")
    (tmp_path / "new.csv").write_text("text;score\n" + "the good film;1,250\nthe bad film;0\n")
    with refusal("unusable-row", "line 2", "--decimal"):
        osbert.evaluate(tmp_path / "run", data=tmp_path / "new.csv")
    (tmp_path / "point.csv").write_text("text,score\nthe good film,1.25\nthe bad film,0\n")
    point = osbert.evaluate(tmp_path / "run", data=tmp_path / "point.csv")
    assert osbert.evaluate(tmp_path / "run", data=tmp_path / "new.csv", decimal="comma") == point


def test_the_confusion_matrix_is_in_what_is_returned_and_written(run: Path, tmp_path: Path) -> None:
    rows = [("good", "pos"), ("good", "neg"), ("bad", "neg"), ("poor film", "neg")]
    scores = osbert.evaluate(run, data=rows, out=tmp_path / "scores.json")
    assert scores.confusion is not None and scores.confusion.labels == ("neg", "pos")
    assert scores.confusion.array().tolist() == [[2, 1], [0, 1]]
    written = json.loads((tmp_path / "scores.json").read_text())
    assert written["confusion"] == {
        "labels": ["neg", "pos"],
        "counts": [[2, 1], [0, 1]],
        "pairs": [["neg", "neg", 2], ["neg", "pos", 1], ["pos", "pos", 1]],
    }
    assert written["metrics"] == scores and pickle.loads(pickle.dumps(scores)).confusion == scores.confusion


def test_the_confusion_matrix_of_many_classes_is_sparse_and_that_of_entities_has_no_label() -> None:
    task = Classify(labels=tuple(f"class {number}" for number in range(5000)))
    records = [Record(number=number, texts=("x",), label="class 7") for number in range(3)]
    predictions = [Prediction(value=f"class {number}") for number in (7, 8, 8)]
    found = plain(Evaluation(task=task, records=records, predictions=predictions, metrics={}).confusion)
    assert found["counts"] is None and len(found["labels"]) == 5000
    assert found["pairs"] == [["class 7", "class 8", 2], ["class 7", "class 7", 1]]
    tagger = Tag(types=("LOC", "PER"))
    text = dataclasses.replace(tagger.record_of(["Ann b c"]), label=(EntitySpan(0, 1, "PER"), EntitySpan(1, 2, "LOC")))
    words = (EntitySpan(0, 1, "LOC"), EntitySpan(2, 3, "PER"))
    said = EntityPrediction(value=tuple(map(text.entity, words)), words=words)
    confusion = Evaluation(task=tagger, records=[text], predictions=[said], metrics={}).confusion
    assert confusion is not None and confusion.labels == ("LOC", "PER", "")
    assert confusion.array().tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert Evaluation(task=Regress(), records=[], predictions=[], metrics={}).confusion is None


def test_unknown_and_missing_labels(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text('text,label\ngood,pos\n"two\nlines",poss\nbad,\n')
    with refusal("unknown-label", f"{path}, line 3", "'poss'", "neg, pos", "'pos'", f"{path}, line 5") as error:
        evaluate(run, data=path)
    assert "missing-label" in error.value.codes
    path.write_text("text,id\ngood,1\n")
    with refusal("unknown-column"):
        evaluate(run, data=path)
    path.write_text("a,b\ngood,pos\n")
    evaluate(run, data=path, file=LabelledOptions(text="a", label="b"))


def test_a_split_that_there_is_not_is_refused_on_a_table_too(run: Path) -> None:
    rows = [("good", "pos"), ("bad", "neg")]
    with refusal("missing-split", "banana"):
        osbert.evaluate(run, data=rows, split="banana")
    assert osbert.evaluate(run, data=rows, split="test") == osbert.evaluate(run, data=rows)


def test_a_folder_and_its_splits(run: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dev.csv").write_text("text,label\ngood,pos\n")
    (tmp_path / "test.csv").write_text("text,id\ngood,7\nbad,8\n")
    evaluate(run, data=tmp_path)
    assert f"rows of {tmp_path / 'dev.csv'}\n" in capsys.readouterr().out
    with refusal("missing-label", "test.csv", "line 2", "line 3"):
        evaluate(run, data=tmp_path, split="test")
    with refusal("missing-split"):
        evaluate(run, data=tmp_path, split="train")
    with refusal("missing-file"):
        evaluate(run, data=tmp_path / "absent")
    with refusal("not-a-model"):
        evaluate(encoder, data=tmp_path)


def test_rows_held_out_of_a_training_file_are_told_as_such_with_its_problems(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.csv"
    rows = "text,label\n" + "good film,pos\nbad film,neg\n" * 10
    path.write_text(rows)
    evaluate(run, data=tmp_path)
    said = capsys.readouterr().out
    assert f"has no file for development: these are the rows of {path} that a fine-tuning holds out" in said
    assert "\n2 rows\n" in said
    path.write_text(rows + "good,pos,film\n,pos\n")
    with refusal("unusable-row", "line 22", "3", "line 23", "--skip-empty") as error:
        evaluate(run, data=tmp_path)
    assert "empty-text" in error.value.codes


def show(task: Classify, records: list[Record], predictions: list[Prediction]) -> None:
    metrics = task.metrics(predictions, records)
    evaluation = Evaluation(task=task, records=records, predictions=predictions, metrics=metrics)
    print(*evaluation.lines(), sep="\n")


def test_labels_in_brackets_are_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    task = Classify(labels=("[red]", "[spam]"))
    records = [Record(number=0, texts=("x",), label="[spam]")]
    predictions = [Prediction(value="[red]")]
    show(task, records, predictions)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["true", "\\", "predicted", "[red]", "[spam]"] in said
    assert ["[spam]", "1", "0"] in said and ["f1/[spam]", "0.0000"] in said


def test_a_class_that_is_nowhere_has_no_score(capsys: pytest.CaptureFixture[str]) -> None:
    task = Classify(labels=("a", "b", "c"))
    records = [Record(number=0, texts=("x",), label="a"), Record(number=1, texts=("x",), label="c")]
    predictions = [Prediction(value="a"), Prediction(value="a")]
    show(task, records, predictions)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["f1/b", "-"] in said and ["f1/c", "0.0000"] in said and ["macro_f1", "0.3333"] in said


def test_nothing_is_fitted_again(encoder: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The training rows of new data do not move a regressor's numbers, nor a classifier's labels."""
    (tmp_path / "train.csv").write_text("text,score\n" + "good film,300\nbad,100\npoor,200\n" * 8)
    (tmp_path / "dev.csv").write_text("text,score\ngood film,300\nbad,100\n")
    out = tmp_path / "run"
    finetune("regress", "--epochs", "1", model=encoder, data=tmp_path, out=out)
    (tmp_path / "new").mkdir()
    rows = [("good film", 9000.0), ("bad", 1000.0)]
    (tmp_path / "new" / "train.csv").write_text("text,score\n" + "".join(f"{a},{b}\n" for a, b in rows))
    (tmp_path / "new" / "dev.csv").write_text("text,score\ngood,1\n")
    capsys.readouterr()
    evaluate(out, data=tmp_path / "new", split="train")
    said = [one.value for one in load_engine(out).predict([text for text, _ in rows])]
    error = sum((value - true) ** 2 for value, (_, true) in zip(said, rows)) / 2
    assert f"{error:.4f}"[:6] in capsys.readouterr().out


def test_the_length_told_is_the_one_read(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.csv").write_text(f"text,label\n{'film ' * 50},pos\nbad,neg\n")
    evaluate(run, data=tmp_path / "new.csv")
    assert "1 text is longer than the run reads (24 tokens)" in capsys.readouterr().out
