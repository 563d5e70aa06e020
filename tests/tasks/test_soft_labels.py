"""Uncertain labels: the forms of rows in which they come, what is learnt of them, and rows that cannot be used."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osbert.data.pack import Packer
from osbert.tasks import Record, load, with_data
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.tables.soft_labels import SoftRecord, check_distribution, spread
from refusals import refusal

ROWS = [("good", 0.75, 0.25), ("bad", 0.1, 0.9), ("so", 0.5, 0.5), ("poor", 0.0, 1.0)]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read(path: str, **settings: Any) -> tuple[Classify, list[Record]]:
    task, records = load(Classify(data=path, dev=path, **settings), ("train", "dev"))
    return task, records["train"]


def probabilities(records: list[Record]) -> list[dict[str, float]]:
    return [dict(record.target) for record in records]


def test_probabilities_are_an_object_in_the_label_or_a_column_for_each_class(tmp_path: Path) -> None:
    expected = [{"pos": 0.75, "neg": 0.25}, {"pos": 0.1, "neg": 0.9}, {"pos": 0.5, "neg": 0.5}, {"neg": 1.0}]
    objects = [{"text": text, "label": {"pos": pos, "neg": neg}} for text, pos, neg in ROWS]
    jsonl = write_jsonl(tmp_path / "rows.jsonl", objects)
    cells = tmp_path / "cells.csv"
    lines = [f"{text},\"{{'pos': {pos}, 'neg': {neg}}}\"" for text, pos, neg in ROWS]  # as pandas writes them
    cells.write_text("\n".join(["text,label", *lines]) + "\n")
    columns = tmp_path / "columns.csv"
    columns.write_text("\n".join(["text,probability of pos,neg", *(f"{t},{p},{n}" for t, p, n in ROWS)]) + "\n")
    readings = [read(jsonl), read(str(cells)), read(str(columns), label_columns=("probability of pos", "neg"))]
    for task, records in readings:
        assert probabilities(records) == expected
        assert [record.label for record in records] == ["pos", "neg", "neg", "neg"]  # of equal ones the first by name
        assert (task.labels, task.targets) == (("neg", "pos"), "soft")
    memory, records = load(with_data(Classify(), {"train": objects, "dev": objects}), ("train", "dev"))
    assert probabilities(records["dev"]) == expected and memory.targets == "soft"


def test_rows_with_and_without_probabilities_mix_and_both_have_a_target_for_each_class(packer: Packer) -> None:
    rows = [
        Record(number=0, texts=("good",), label="a"),
        SoftRecord(number=1, texts=("good",), label="b", probabilities={"b": 0.7, "c": 0.3}),
    ]
    task = Classify(class_weights="c=3").fit(rows)
    assert task.labels == ("a", "b", "c")
    targets = [task.encode(row, packer)[0].targets["classify"] for row in rows]
    assert [target.labels.round(6).tolist() for target in targets] == [[1, 0, 0], pytest.approx([0, 0.7, 0.3])]
    assert targets[1].weights.tolist() == pytest.approx([0, 0.7, 0.9])
    hard = Classify(targets="hard").fit(rows)
    assert [hard.encode(row, packer)[0].targets["classify"].labels.tolist() for row in rows] == [[0], [1]]
    assert (
        hard.targets == "hard"
        and Classify().fit(rows[:1] + [Record(number=2, texts=("b",), label="b")]).targets == "auto"
    )
    assert Classify(class_weights="balanced").fit(rows).weights == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def test_a_confidence_leaves_the_rest_to_the_other_labels(tmp_path: Path) -> None:
    rows = [
        {"text": "good", "label": "pos", "confidence": 0.8},
        {"text": "bad", "label": "neg", "confidence": 1},
        {"text": "so", "label": "mixed", "confidence": 0.4},
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    task, records = read(path, confidence="confidence")
    assert probabilities(records) == [{"pos": 0.8}, {"neg": 1.0}, {"mixed": 0.4}]
    assert spread(records[0].target, task.labels) == pytest.approx([0.1, 0.1, 0.8])
    assert any(line.endswith("with its probability from 'confidence'") for line in task.source.findings())
    clean = write_jsonl(tmp_path / "clean.jsonl", [{"text": "fine", "label": "pos"}])
    _, splits = load(Classify(data=path, dev=clean, confidence="confidence"), ("train", "dev"))
    assert type(splits["dev"][0]) is Record
    for wrong in (0, 80, "", "sure"):
        bad = write_jsonl(tmp_path / "bad.jsonl", [*rows, {"text": "x", "label": "pos", "confidence": wrong}])
        with refusal("unusable-row", "bad.jsonl, line 4: "):
            read(bad, confidence="confidence")
    with refusal("unknown-column", "'conf'", "--confidence"):
        read(path, confidence="conf")


def test_the_votes_of_two_are_fractions_and_those_of_three_are_weighed(tmp_path: Path) -> None:
    rows = [
        {"text": "good", "a": "pos", "b": "pos"},
        {"text": "bad", "a": "neg", "b": ""},
        {"text": "so", "a": "neg", "b": "pos"},
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    task, records = read(path, label="a,b")
    assert probabilities(records) == [{"pos": 1.0}, {"neg": 1.0}, {"neg": 0.5, "pos": 0.5}]
    assert task.label == "a,b" and records[1].votes == {"a": "neg"}
    missing = write_jsonl(tmp_path / "missing.jsonl", [*rows, {"text": "none", "a": "", "b": ""}])
    with refusal("missing-label", "missing.jsonl, line 4: "):
        read(missing, label="a,b")
    assert len(read(missing, label="a,b", skip_unlabelled=True)[1]) == 3
    with refusal("unknown-column", "'c'", "--label"):
        read(path, label="a,c")
    lists = write_jsonl(
        tmp_path / "lists.jsonl", [{"text": "x", "label": ["p", "p", "n"]}, {"text": "y", "label": ["n"]}]
    )
    assert probabilities(read(lists, aggregation="votes")[1]) == [{"n": 1 / 3, "p": 2 / 3}, {"n": 1.0}]
    with refusal("unusable-row", "lists.jsonl, line 1: ", "--aggregation votes"):
        read(lists)


@pytest.mark.lab
def test_votes_that_are_none_and_columns_named_twice(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "good", "label": ["a", None, " ", 3]}, {"text": "bad", "label": ["b"]}]
    _, records = read(write_jsonl(tmp_path / "rows.jsonl", rows), aggregation="votes")
    assert probabilities(records) == [{"3": 0.5, "a": 0.5}, {"b": 1.0}]
    for label, code in (([["a"], "b"], "unusable-row"), ([], "missing-label"), ([None], "missing-label")):
        path = write_jsonl(tmp_path / "rows.jsonl", [*rows, {"text": "so", "label": label}])
        with refusal(code, "line 3"):
            read(path, aggregation="votes")
    columns = tmp_path / "columns.csv"
    columns.write_text("text,a,b\ngood,1,0\nbad,0,1\n")
    for settings in ({"label": "a,a"}, {"label_columns": ("a", "b", "a")}):
        with refusal("duplicate-name", "'a'"):
            read(str(columns), **settings)


def test_votes_that_differ_in_case_are_remarked_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,ann,ben\ngood,Pos,pos\nbad,neg,neg\n")
    task, _ = read(str(path), label="ann,ben")
    assert any("Pos" in line and "case" in line for line in task.source.findings())


@pytest.mark.lab
def test_an_annotator_who_guesses_counts_less(tmp_path: Path) -> None:
    truth = ["pos", "neg"] * 40
    guesses = np.random.default_rng(1).choice(["pos", "neg"], 80).tolist()
    rows = [{"text": f"t {i}", "a": true, "b": true, "c": guess} for i, (true, guess) in enumerate(zip(truth, guesses))]
    rows[0] |= {"a": "pos", "b": "", "c": "neg"}
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    task, records = read(path, label="a,b,c")
    assert records[0].target["pos"] > 0.85
    assert any("alpha" in line and "c 0.60" in line and "Dawid" in line for line in task.source.findings())
    assert read(path, label="a,b,c", aggregation="votes")[1][0].target == {"neg": 0.5, "pos": 0.5}
    # A clean file of development rows has one label, and another one may have the same annotators.
    clean = write_jsonl(tmp_path / "clean.jsonl", [{"text": "fine", "label": "pos"}])
    _, splits = load(Classify(data=path, dev=clean, label="a,b,c"), ("train", "dev"))
    assert [record.target for record in splits["dev"]] == ["pos"]
    assert task.source.switch_data(Path(path), {}).label == "a,b,c"
    assert task.source.switch_data(Path(clean), {}).label == ""


@pytest.mark.parametrize("kind", [Classify, Multilabel])
def test_columns_of_another_form_replace_those_of_the_training_rows(
    tmp_path: Path, kind: type[Classify | Multilabel]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label,a,b\ngood,a,1,0\nbad,b,0,1\n")
    by_form: list[dict[str, Any]] = [{"label": "label"}, {"label_columns": ("a", "b")}]
    for trained, given in itertools.product(by_form, by_form):
        task = kind(data=str(path), **trained).source.resolve().source.switch_data(path, given)
        assert isinstance(task, kind)
        assert {"label": task.label, "label_columns": task.label_columns} == {"label": "", "label_columns": ()} | given


def test_sums_other_than_1_are_reported_with_their_rows_and_divided_on_request(tmp_path: Path) -> None:
    rows = [{"text": str(sum(counts)), "label": dict(zip("ab", counts))} for counts in [(3, 1), (0.5, 0.5), (0, 2)]]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    with refusal("unusable-row", "line 1: ", "sum to 4", "line 3: ", "sum to 2", "--normalize") as error:
        read(path)
    assert "line 2" not in str(error.value)
    assert probabilities(read(path, normalize=True)[1]) == [{"a": 0.75, "b": 0.25}, {"a": 0.5, "b": 0.5}, {"b": 1.0}]
    thirds = check_distribution({"a": 0.33, "b": 0.33, "c": 0.33}, normalize=False)
    assert sum(thirds.values()) == pytest.approx(1)
    for wrong in ({"a": -0.5, "b": 1.5}, {"a": 0.0}, {"a": float("nan")}, {"a": 1e308, "b": 1e308}):
        with pytest.raises(ValueError, match="probabilit"):
            check_distribution(wrong, normalize=True)
    for label in ('{"a": "x"}', '{"a": 0.5,', "{'a': [1]}", '{"a": 0.5, "a": 0.5}', '{"": 1}'):
        broken = write_jsonl(tmp_path / "broken.jsonl", [{"text": "x", "label": label}, *rows[1:2]])
        with refusal("unusable-row", "broken.jsonl, line 1: "):
            read(broken)
    with pytest.raises(ValueError, match="label_columns"):
        Classify(label_columns=("a", "b"), label="label")


def test_columns_of_probabilities_that_another_file_lacks_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,a,b\ngood,1,0\nbad,0,1\n")
    (tmp_path / "dev.csv").write_text("text,c,d\ngood,1,0\nbad,0,1\n")
    with refusal("unknown-column", "dev.csv", "'a', 'b'"):
        load(Classify(data=str(tmp_path), label_columns=("a", "b")), ("train", "dev"))


def test_a_label_that_has_no_training_row_is_unknown_in_an_object(tmp_path: Path) -> None:
    train = write_jsonl(tmp_path / "train.jsonl", [{"text": "x", "label": {"a": 0.5, "b": 0.5}}])
    dev = write_jsonl(tmp_path / "dev.jsonl", [{"text": "x", "label": {"a": 0.9, "c": 0.1}}])
    with refusal("unknown-label", "dev.jsonl, line 1", "'c'"):
        load(Classify(data=train, dev=dev), ("train", "dev"))


def test_the_memory_for_counting_labels_does_not_grow_with_rows_times_labels() -> None:
    names = [f"label {number}" for number in range(500)]
    records = [Record(number=0, texts=("x",), label=name) for name in names * 10]
    records.append(SoftRecord(number=0, texts=("x",), label=names[0], probabilities={names[0]: 0.75, names[1]: 0.25}))
    tracemalloc.start()
    task = Classify(class_weights="balanced").fit(records)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6 < len(records) * len(names) * 8
    share = len(records) / len(names)
    weights = dict(zip(task.labels, task.weights))
    assert [weights[name] for name in names[:3]] == pytest.approx([share / 10.75, share / 10.25, share / 10])


def test_a_probability_for_each_of_several_labels(tmp_path: Path, packer: Packer) -> None:
    objects = [
        {"text": "good", "labels": {"art": 0.9, "war": 0.6}},
        {"text": "bad", "labels": ["war"]},
        {"text": "so", "labels": {"art": 0.2}},
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", objects)
    columns = tmp_path / "columns.csv"
    columns.write_text("text,art,war\ngood,0.9,0.6\nbad,0,1\nso,0.2,0\n")
    for data, settings in ((path, {}), (str(columns), {"label_columns": ("art", "war")})):
        task, records = load(Multilabel(data=data, dev=data, **settings), ("train", "dev"))
        assert task.labels == ("art", "war")
        assert [record.label for record in records["train"]] == [("art", "war"), ("war",), ()]
        targets = [task.encode(record, packer)[0].targets["multilabel"].labels.tolist() for record in records["train"]]
        assert targets == [pytest.approx([0.9, 0.6]), [0, 1], pytest.approx([0.2, 0])]
    wrong = write_jsonl(tmp_path / "wrong.jsonl", [*objects, {"text": "x", "labels": {"art": 3}}])
    with refusal("unusable-row", "wrong.jsonl, line 4: ", "'art'"):
        load(Multilabel(data=wrong, dev=path), ("train", "dev"))
