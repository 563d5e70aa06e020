"""multilabel: labels read from lists, cells and columns; what is refused; targets, thresholds and predictions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils import compute_class_weight

from osbert.data.pack import Packer
from osbert.evaluation.score import constant_answer
from osbert.reading.memory import tables
from osbert.runs.finetune.records import Overlap, data_notices
from osbert.tasks import Record, findings, load, with_data
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.kinds.multilabel.columns import canonical, cell_labels, find_separator, join_labels
from osbert.tasks.kinds.multilabel.prediction import LabelsPrediction
from refusals import refusal

SETS: list[list[str]] = [["art", "war"], ["art"], [], ["war"]]
BOTH = ("art", "war")


def records(*sets: Sequence[str]) -> list[Record]:
    return [Record(number=place, texts=("good film",), label=tuple(own)) for place, own in enumerate(sets)]


def rows(text: str, *, times: int = 5) -> list[str]:
    """Return lines of a table with the labels of `SETS`, in which {} stands for the text."""
    return [line.format(f"text {number}") for number, line in enumerate(text.splitlines() * times)]


def lines(times: int = 5) -> str:
    return "".join(json.dumps({"text": f"text {n}", "labels": SETS[n % 4]}) + "\n" for n in range(4 * times))


TABLES = {
    "list.jsonl": lines(),
    "semicolon.csv": "\n".join(["text,labels", *rows("{},art;war\n{},art\n{},\n{},war")]),
    "bar.tsv": "\n".join(["text\tcategory", *rows("{}\twar | art\n{}\tart\n{}\t\n{}\twar |")]),
    "comma.csv": "\n".join(["text,tags", *rows('{},"war, art"\n{},art\n{},""\n{},war')]),
    "cell-list.csv": "\n".join(["text,labels", *rows("{},\"['art', 'war']\"\n{},['art']\n{},[]\n{},war")]),
    "columns.csv": "\n".join(["id,text,art,war", *rows("1,{},1,1\n2,{},1,0\n3,{},0,0\n4,{},0,1")]),
    "flags.jsonl": "".join(
        json.dumps({"text": f"text {n}", "art": "art" in SETS[n % 4], "war": float("war" in SETS[n % 4])}) + "\n"
        for n in range(20)
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_labels_are_read_however_they_are_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TABLES[name] + "\n" * (not TABLES[name].endswith("\n")))
    task, found = load(Multilabel(data=str(path)).source.resolve(), ("train", "dev"))
    by_text = {record.texts[0]: record.label for split in found.values() for record in split}
    assert by_text == {f"text {n}": tuple(SETS[n % 4]) for n in range(20)}
    assert task.labels == BOTH and len(found["dev"]) == 2
    said = {"semicolon.csv": ";", "bar.tsv": "|", "comma.csv": ","}
    assert task.separator == said.get(name, "")  # type: ignore[attr-defined]
    flags = name in ("columns.csv", "flags.jsonl")
    assert task.label_columns == (BOTH if flags else ())  # type: ignore[attr-defined]
    (line,) = [line for line in findings(task) if "text from" in line]
    assert (f"'{said[name]}'" if name in said else "columns of 0 and 1" if flags else "a list") in line
    given = tables([{"text": "x", "labels": ["war"]}, {"text": "y", "labels": []}])
    _, others = load(task.source.switch_data(given, {}), ("all",), fit=False)
    assert [record.label for record in others["all"]] == [("war",), ()]
    assert task.source.inputs(path).describe.endswith("not read")


def test_a_trained_task_reads_labels_that_are_written_otherwise(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(TABLES["columns.csv"])
    task, _ = load(Multilabel(data=str(tmp_path / "train.csv")).source.resolve(), ("train", "dev"))
    for name, text in TABLES.items():
        (tmp_path / name).write_text(text)
        _, found = load(task.source.switch_data(tmp_path / name, {}), ("all",), fit=False)
        assert [record.label for record in found["all"]] == [tuple(SETS[n % 4]) for n in range(20)]


@pytest.mark.parametrize(
    ("text", "settings", "code", "shown"),
    [
        ("text,labels\na,x;y\nb,x|y\n", {}, "ambiguous-separator", ("';'", "'x;y'", "'|'", "'x|y'", "--separator")),
        ('text,labels\na,"Boston, MA"\nb,"Albany, NY"\n', {}, "ambiguous-separator", ("','", "'Albany, NY'", "none")),
        ('text,labels\na,"1,5"\nb,2\n', {}, "ambiguous-separator", ("'1,5'", "--separator ','")),
        ("text,labels\na,x\nb,a|b\n", {}, "ambiguous-separator", ("'a|b'", "--separator '|'", "none")),
        ("text,label,verified\na,0,1\nb,1,0\n", {}, "ambiguous-column", ("--label-columns label,verified", "--label ")),
        ("text,label,tags\na,x,y\nb,y,z\n", {}, "ambiguous-column", ("'label'", "'tags'", "--label")),
        ("text,x,y,source\na,0,1,web\nb,1,0,book\n", {}, "ambiguous-column", ("x,y", "source", "--label-columns")),
        ("text,x,y\na,0,1\nb,1,2\n", {"label_columns": BOTH}, "unknown-column", ("art", "label-columns")),
        ("text,x,y\na,0,1\nb,1,2\n", {"label_columns": ("x", "y")}, "unusable-row", ("line 3", "'y'", "'2'")),
        # Found among the columns, though one cell of ten is wrong: what is wrong is the cell, not the column.
        ("text,x,y\n" + "a,0,1\nb,1,0\n" * 5 + "c,yes?,0\n", {}, "unusable-row", ("line 12", "'x'", "'yes?'")),
        ("text,x,y\na,0,1\nb,,\n", {"label_columns": ("x", "y")}, "missing-label", ("line 3",)),
        ("text,labels\na,x\nb,x\n", {}, "nothing-to-learn", ("x",)),
        ("text,labels\na,\nb,\n", {}, "nothing-to-learn", ("--label",)),
        ('{"text": "a", "labels": ["x"]}\n{"text": "b", "labels": null}\n', {}, "missing-label", ("line 2",)),
        ('{"text": "a", "labels": ["x"]}\n{"text": "b"}\n', {}, "missing-label", ("line 2", "'labels'")),
        ('{"text": "a", "labels": ["x"]}\n{"text": "b", "labels": {"x": "1"}}\n', {}, "unusable-row", ("line 2",)),
        ('{"text": "a", "labels": ["x"]}\n{"text": "b", "labels": [null]}\n', {}, "unusable-row", ("line 2", "None")),
        ('{"text": "a", "labels": [1, 0, 1]}\n{"text": "b", "labels": []}\n', {}, "unusable-row", ("line 1", "1")),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, text: str, settings: dict[str, Any], code: str, shown: tuple[str, ...]
) -> None:
    path = tmp_path / ("data.jsonl" if text.startswith("{") else "data.csv")
    path.write_text(text)
    with refusal(code, *shown) as error:
        load(Multilabel(data=str(path), **settings).source.resolve(), ("train",))
    assert code in error.value.codes


def test_a_separator_that_is_given_decides(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('text,labels\na,"New York, NY;Rome"\nb,Rome\nc,Rome\n')
    task, _ = load(Multilabel(data=str(path), separator=";").source.resolve(), ("train",))
    assert task.labels == ("New York, NY", "Rome")
    whole, _ = load(Multilabel(data=str(path), separator="none").source.resolve(), ("train",))
    assert whole.labels == ("New York, NY;Rome", "Rome") and "--separator" in whole.description.warnings()[0]


def test_labels_of_the_development_rows_alone_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,labels\na,art;war\nb,war\n")
    (tmp_path / "dev.csv").write_text("text,labels\na,art;wra\nb,peace;war\n")
    with refusal("unknown-label", "dev.csv, line 2: ", "'wra'", "'war'", "dev.csv, line 3: ", "'peace'"):
        load(Multilabel(data=str(tmp_path)).source.resolve(), ("train", "dev"))


def test_a_column_of_a_label_that_the_run_does_not_know_is_named() -> None:
    data = [{"text": "a", "art": 1, "war": 0}, {"text": "b", "art": 0, "war": 1}] * 9
    task, _ = load(with_data(Multilabel(), data).source.resolve(), ("train", "dev"))
    other = tables([{"text": "a", **dict.fromkeys(("id", "art", "war", "peace"), flag)} for flag in (0, 1)])
    (line,) = task.source.switch_data(other, {}).source.left_out("dev")
    assert line.endswith(": 'peace'")
    assert not task.source.left_out("train")
    fewer = tables([{"text": "a", "art": flag, "music": flag} for flag in (0, 1)])
    (absent,) = Multilabel(labels=("art", "music", "war")).source.switch_data(fewer, {}).source.left_out("dev")
    assert "no column for war" in absent


def test_the_last_row_of_a_label_is_not_held_out() -> None:
    data = [{"text": f"t{n}", "labels": ["a", f"rare {n}"] if n % 2 else ["a"]} for n in range(40)]
    task, found = load(with_data(Multilabel(), data).source.resolve(), ("train", "dev"))
    assert len(found["dev"]) == 4 and all(record.label == ("a",) for record in found["dev"])
    assert "rare 1" in task.labels and any("has rare 1" in line for line in data_notices(task, found, Overlap()))


names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=4)


@given(labels=st.lists(names, max_size=4), separator=st.sampled_from([";", "|", ","]))
def test_what_is_written_is_read_back(labels: list[str], separator: str) -> None:
    wanted = canonical(labels)
    assert cell_labels(join_labels(wanted, separator), separator) == wanted


@pytest.mark.parametrize(
    ("separator", "cell"), [(" / ", "art / war"), ("none", '["art", "war"]'), ("|", "art|war"), ("", "art;war")]
)
def test_predictions_are_written_as_the_run_reads_labels(separator: str, cell: str) -> None:
    task = Multilabel(labels=BOTH, separator=separator)
    said = LabelsPrediction(value=BOTH, probabilities=dict.fromkeys(BOTH, 1.0))
    assert task.cells(said)["prediction"] == cell
    assert cell_labels(cell, separator or ";") == BOTH
    assert cell_labels(join_labels(("a /", "b"), " / "), " / ") == ("a /", "b")


@pytest.mark.parametrize(
    "labels", [["art", "war"], ["it's", 'a "b"'], ["a, b", "c;d"], ["x'\n 'y", "z"], [7, 12], [0.5, 12.0]]
)
def test_an_array_of_numpys_as_text_is_its_items(labels: list[Any]) -> None:
    for array in (np.array(labels), np.array(labels, dtype=object), np.array(labels * 40, dtype=object)):
        if isinstance(labels[0], str) or len(array) == 2:
            assert cell_labels(str(array), "none") == canonical(map(str, labels))
    assert cell_labels(str(tuple(labels)), "none") == canonical(map(str, labels))


def test_one_hot_arrays_and_words_in_brackets_are_no_labels_of_their_own() -> None:
    with pytest.raises(ValueError, match="holds 0 twice"):
        cell_labels(str(np.array([0, 1, 0])), "none")
    assert [cell_labels(cell, "none") for cell in ("[spam]", "(spam)", "[a b]", "(1)")] == [
        ("[spam]",), ("(spam)",), ("[a b]",), ("(1)",)
    ]  # fmt: skip


def test_thresholds_are_not_given_before_training() -> None:
    with refusal("invalid-setting", "--thresholds", "--threshold"):
        Multilabel(thresholds=(0.9, 0.9)).fit(records(("art",), ("war",)))


def test_a_single_sign_is_the_separator() -> None:
    assert find_separator(["a, b", "a"], where="it") == "," and find_separator(["a b", "[1, 2]"], where="it") == ""
    assert find_separator(["a;b", "c;d"], where="it") == ";"
    assert find_separator(["a, b"], where="it", known=("a", "b", "c")) == ","
    with refusal("ambiguous-separator", "'x, y'"):
        find_separator([*map(str, range(10_000)), "x, y"], where="it")


def test_an_example_carries_a_target_for_each_label(packer: Packer) -> None:
    task = Multilabel(labels=("a", "b", "c"))
    (example,) = task.encode(records(("a", "c"))[0], packer)
    assert example.targets["multilabel"].labels.tolist() == [1, 0, 1]
    assert example.targets["multilabel"].weights is None
    windows = dataclasses.replace(task, long="window", overlap=2)
    parts = windows.encode(Record(number=0, texts=("good " * 12,), label=("b",)), packer)
    assert len(parts) > 1
    for part in parts:
        assert part.targets["multilabel"].labels.tolist() == [0, 1, 0]
        assert part.targets["multilabel"].weights == pytest.approx([1 / len(parts)] * 3)


def test_weights_are_of_the_rows_that_have_a_label(packer: Packer) -> None:
    rows = records(("a",), ("b",), ("b",), ())
    balanced = Multilabel(class_weights="balanced").fit(rows)
    assert balanced.weights == (3.0, 1.0) and Multilabel().fit(rows).weights == ()
    for place, name in enumerate("ab"):  # as scikit-learn weighs the two sides of one label
        sides = compute_class_weight("balanced", classes=np.array([0, 1]), y=np.array([name in r.label for r in rows]))
        assert balanced.weights[place] == pytest.approx(sides[1] / sides[0])
    task = Multilabel(class_weights="b=2.5").fit(rows)
    (example,) = task.encode(rows[1], packer)
    assert example.targets["multilabel"].weights.tolist() == [1.0, 2.5]
    assert task.encode(rows[0], packer)[0].targets["multilabel"].weights.tolist() == [1.0, 1.0]
    with refusal("unknown-label", "'c'"):
        Multilabel(class_weights="c=2").fit(rows)


def test_decoding_is_a_sigmoid_and_the_thresholds() -> None:
    outputs = [np.array([2.0, -1.0, -800.0], np.float32)]
    task = Multilabel(labels=("b", "a", "c"), thresholds=(0.9, 0.2, 0.2))
    said = task.decode(outputs, records(())[0], [])
    assert said.value == ("a",)
    expected = 1 / (1 + np.exp(-np.array([2.0, -1.0])))
    assert list(said.probabilities.values()) == pytest.approx([*expected, 0.0])
    assert Multilabel(labels=("b", "a", "c")).decode(outputs, records(())[0], []).value == ("b",)
    assert Multilabel(labels=("b", "a", "c"), threshold="0.1").decode(outputs, records(())[0], []).value == ("a", "b")
    assert said.lines()[0] == "a" and [line[0] for line in said.lines()[1:]] == [" ", "*", " "]
    assert said.as_dict()["prediction"] == ["a"] and said.apply_thresholds((1, 1, 1)).lines()[0] == "(no label)"


def test_thresholds_are_learnt_from_the_development_rows() -> None:
    shares = [(0.4, 0.1), (0.3, 0.2), (0.2, 0.3)]
    said = [LabelsPrediction(value=(), probabilities=dict(zip(BOTH, own))) for own in shares]
    rows = records(("art",), ("art",), ("war",))
    found, _ = Multilabel(labels=BOTH, threshold="per-label").tune(said, rows)
    assert found.thresholds == pytest.approx((0.25, 0.25)) and found.criterion == "macro_f1"
    best = found.at_best(said, rows)
    assert [one.value for one in best] == [("art",), ("art",), ("war",)]
    scores = found.metrics(best, rows)
    assert {*scores.values()} == {1.0}
    assert Multilabel(labels=BOTH).tune(said, rows)[0].thresholds == pytest.approx((0.25, 0.25))
    assert Multilabel(labels=BOTH, threshold="0.35").tune(said, rows)[0].thresholds == (0.35, 0.35)
    assert found.description.details(best, rows)[1] == ["art", "0.250", "2", "2", "2"]
    assert [found.outcome(one, row).error for one, row in zip(said, rows)] == pytest.approx([0.6, 0.7, 0.7])
    assert found.outcome(best[0], rows[0]).error == 0
    assert constant_answer(found, said, rows) == "without a label" and not constant_answer(found, best, rows)


def test_labels_that_only_a_threshold_between_equal_probabilities_parts_are_a_collapse() -> None:
    shares = [(0.48, 0.47), (0.49, 0.46), (0.47, 0.48)]
    task, rows = Multilabel(labels=BOTH), records(("art",), ("art", "war"), ("war",))
    predictions = [LabelsPrediction(value=(), probabilities=dict(zip(BOTH, own))) for own in shares]
    best = task.at_best(predictions, rows)
    assert len({one.value for one in best}) > 1 and constant_answer(task, best, rows)


@pytest.mark.parametrize(
    "settings",
    [{"threshold": "best"}, {"threshold": "1.5"}, {"threshold": "nan"}, {"label": "x", "label_columns": ("y", "z")}]
    + [{"labels": ("a", "b"), "thresholds": (0.5,)}],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Multilabel(**settings)
