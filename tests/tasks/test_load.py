"""What is read of a task's files before training: rows without labels, and problems of a file read for two splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osbert.errors import Problems
from osbert.runs.finetune.records import Overlap, data_notices
from osbert.tasks import Task, load
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.contrastive import Contrastive
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.rerank import Rerank
from osbert.tasks.kinds.span import Span
from osbert.tasks.tables import TableTask
from refusals import refusal

L1, L2 = ', "label": "pos"', ', "label": "neg"'
ANSWER = {"answers": [{"text": "film", "answer_start": 2}]}


def questions(path: Path, *labels: dict[str, Any]) -> None:
    asked = [{"id": f"q{place}", "question": "what?", **label} for place, label in enumerate(labels)]
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "a film", "qas": asked}]}]}
    path.write_text(json.dumps(content))


def test_development_rows_without_a_label_are_all_named_before_training(tmp_path: Path) -> None:
    questions(tmp_path / "train.json", ANSWER, {}, {})
    questions(tmp_path / "dev.json", {}, ANSWER, {})
    with refusal("missing-label") as error:
        load(Span(data=str(tmp_path)).source.resolve(), ("train", "dev"))
    said = str(error.value).splitlines()
    assert len(said) == 3 and all(str(tmp_path / "dev.json") in line for line in said[1:])
    assert "(id q0)" in said[1] and "(id q2)" in said[2]
    questions(tmp_path / "dev.json", ANSWER)
    told = "\n".join(data_notices(*load(Span(data=str(tmp_path)).source.resolve(), ("train", "dev")), Overlap()))
    assert "train: 2 of 3 have no answer that occurs in the paragraph (first: " in told and "(id q1)) and are" in told


def test_a_file_read_for_training_and_development_tells_its_problems_once(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text("text,label\n" + "good,pos\nbad,neg\n" * 10 + "good,pos,film\n")
    with refusal("unusable-row") as error:
        load(Classify(data=str(path)), ("train", "dev"))
    assert str(error.value).count("line 22") == 1
    path.write_bytes(b"text,label\ngood,pos\n" * 3 + b"b\xe9d,neg\n")
    with refusal("wrong-encoding") as error:
        load(Classify(data=str(path)), ("train", "dev"))
    assert str(error.value).count("utf-8") == str(error.value).count("0xe9") == 1


@pytest.mark.parametrize(
    ("task", "text", "told"),
    [
        (Classify(), "text,label\nx,a\n", "text from 'text', the labels in 'label' are not read"),
        (Classify(), "text,more\nx,a\n", "text from 'text', no label"),
        (Span(), "question,context,answer\nq,p,p\n", "the answers in 'answer' are not read"),
        (Span(), "question,context\nq,p\n", "no answers"),
    ],
)
def test_a_file_to_predict_tells_that_its_labels_are_not_read(tmp_path: Path, task: Task, text: str, told: str) -> None:
    (tmp_path / "new.csv").write_text(text)
    inputs = task.source.inputs(tmp_path / "new.csv")
    assert inputs.describe.endswith(told)
    assert [record.label for _, record in inputs.rows(Problems(heading="")) if record] == [None]


@pytest.mark.parametrize("text", [{"en": "a film"}, ["a", "film"]])
@pytest.mark.parametrize(
    ("task", "more"),
    [
        (Classify(), {"label": "pos"}),
        (Classify(), {"label": {"pos": 0.8, "neg": 0.2}}),
        (Multilabel(), {"labels": ["pos"]}),
        (Regress(), {"score": 1.5}),
        (Contrastive(), {"pair": "a play"}),
        (Rerank(), {"query": "q", "document": "d", "label": 1}),
        (Span(), {"question": "who?", "answers": []}),
    ],
)
def test_a_text_that_is_an_object_or_a_list_is_refused(
    tmp_path: Path, task: Task, more: dict[str, Any], text: Any
) -> None:
    name = {"rerank": "query", "span": "context"}.get(task.name, "text")
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"text": "a play", **more, name: text}) + "\n")
    problems = Problems(heading="")
    rows = [*task.source.read(path, problems, labelled=True)]  # type: ignore[attr-defined]
    assert not rows and problems.count == 1
    assert f"{path}, line 1: '{name}' is a list or an object ({json.dumps(text)})" in problems.messages[0]


def test_a_file_without_rows_is_called_the_data(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("text,label\n")
    with refusal("no-data", path.name) as raised:
        load(Classify(data=str(path), labels=("a", "b")), ("all",), fit=False)
    assert "all file" not in str(raised.value)


def test_a_table_in_one_object_is_advised_to_be_rows(tmp_path: Path) -> None:
    path = tmp_path / "pandas.json"
    path.write_text(json.dumps({"text": {"0": "good"}, "label": {"0": "pos"}}))
    with refusal("unusable-row", "orient='records'"):
        load(Classify(data=str(path)), ("train", "dev"))


@pytest.mark.parametrize(
    ("task", "name", "rows"),
    [
        (Classify, "data.csv", ["text,label", "a,pos", "b,", "c,neg", "d, ", "e,pos", "f,neg"]),
        (Regress, "data.csv", ["text,score", "a,1", "b,", "c,2", "d, ", "e,1", "f,2"]),
        (
            Classify,
            "data.jsonl",
            ["", *(f'{{"text": "a"{label}}}' for label in (L1, "", L2, ', "label": null', L1, L2))],
        ),
    ],
)
def test_rows_without_a_label_are_refused_or_left_out_and_counted(
    tmp_path: Path, task: type[TableTask], name: str, rows: list[str]
) -> None:
    path = tmp_path / name
    path.write_text("\n".join([*rows[:1], *rows[1:] * 3]) + "\n")
    unlabelled = [3, 5, 9, 11, 15, 17]
    with refusal("missing-label") as error:
        load(task(data=str(path)).source.resolve(), ("train", "dev"))
    told = str(error.value).splitlines()[1:]
    assert [line.partition(": ")[0] for line in told] == [f"  - {path}, line {line}" for line in unlabelled]
    assert all("--skip-unlabelled" in line for line in told)
    fitted, records = load(
        task(data=str(path), skip_unlabelled=True, held_out=0.3).source.resolve(),
        ("train", "dev"),
    )
    found = sorted(record.line for split in records.values() for record in split)
    assert found == [line for line in range(2, 20) if line not in unlabelled]
    out = "\n".join(data_notices(fitted, records, Overlap()))
    assert f"rows left out: 6, the first being {path}, line 3: " in out and "--skip" not in out
