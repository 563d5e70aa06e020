"""The data sets of texts to write: SciTLDR, Multi30k and SQuAD's questions, in their own files and as tables."""

from __future__ import annotations

import json
from pathlib import Path

from osbert.errors import Problems
from osbert.tasks import load
from osbert_lab.data_sets.multi30k import Multi30k
from osbert_lab.data_sets.scitldr import Scitldr
from osbert_lab.data_sets.squad_questions import SquadQuestions
from refusals import refusal


def test_sentences_and_summaries(tmp_path: Path) -> None:
    rows = [{"source": ["One.", "Two."], "target": ["Short."]}, {"source": ["A."], "target": ["B.", "C."]}]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, records = load(Scitldr(data=str(tmp_path)).source.resolve(), ("train", "dev"))
    assert [(one.texts, one.label) for one in records["dev"]] == [
        (("One. Two.",), ("Short.",)),
        (("A.",), ("B.", "C.")),
    ]


def test_two_files_of_lines(tmp_path: Path) -> None:
    for name, text in (("train.en", "a\nb\n\nc\n"), ("train.de", "A\nB\n\nC\n"), ("val.en", "d\n"), ("val.de", "D\n")):
        (tmp_path / name).write_text(text)
    task = Multi30k(data=str(tmp_path))
    _, records = load(task.source.resolve(), ("train", "dev"))
    assert [(one.texts[0], one.label[0], one.line) for one in records["train"]] == [
        ("a", "A", 1), ("b", "B", 2), ("c", "C", 4)
    ]  # fmt: skip
    assert len(task.source.findings()) == 2 and records["dev"][0].label == ("D",)
    backwards = Multi30k(data=str(tmp_path), text=("de",), target="en")
    assert next(backwards.source.records("dev", Problems(heading=""))).texts == ("D",)
    moved = task.source.switch_data(tmp_path / "val.en", {})
    assert [record.label for record in moved.source.records("all", Problems(heading=""))] == [("D",)]
    plain = tmp_path / "new.en"
    plain.write_text("x\n\ny\n")
    inputs = task.source.switch_data(plain, {}).source.inputs(plain)
    assert [record and record.texts for _, record in inputs.rows(Problems(heading=""))] == [("x",), None, ("y",)]
    (tmp_path / "train.de").write_text("A\nB\n")
    with refusal("wrong-format", "train.de", "line 3"):
        load(Multi30k(data=str(tmp_path)).source.resolve(), ("train", "dev"))


def test_tables_have_a_column_a_language(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("en,de\n" + "a,A\n" * 20)
    task, records = load(Multi30k(data=str(tmp_path)).source.resolve(), ("train", "dev"))
    assert (records["dev"][0].texts, records["dev"][0].label) == (("a",), ("A",))
    assert task.source.switch_data(tmp_path / "train.csv", {}).source.inputs(tmp_path / "train.csv").columns == (
        "en",
        "de",
    )


def test_questions_for_answers_in_paragraphs(tmp_path: Path) -> None:
    assert SquadQuestions().sample == '"answer of yours" "context of yours"'
    answers = [{"text": "Paris", "answer_start": 0}, {"text": "Paris", "answer_start": 0}]
    asked = [{"id": "1", "question": "Where?", "answers": answers}, {"id": "2", "question": "Why?", "answers": []}]
    paragraphs = [{"context": f"Paris {number}.", "qas": asked} for number in range(20)]
    path = tmp_path / "train-v1.1.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    task, records = load(SquadQuestions(data=str(path)).source.resolve(), ("train", "dev"))
    assert len(records["dev"]) == 2 and len(records["train"]) == 18
    one = records["train"][0]
    assert (one.texts[0], one.label) == ("Paris", ("Where?",))
    assert isinstance(task, SquadQuestions) and task.source_text(one).startswith("answer: Paris context: Paris ")
    (tmp_path / "more.csv").write_text("answer,context\nParis,Paris 1.\n")
    moved = task.source.switch_data(tmp_path / "more.csv", {})
    [(_, record)] = moved.source.inputs(tmp_path / "more.csv").rows(Problems(heading=""))
    assert record is not None and record.texts == ("Paris", "Paris 1.")


def test_one_paragraph_leaves_no_questions_for_development(tmp_path: Path) -> None:
    answers = [{"text": "film", "answer_start": 4}]
    asked = [{"id": str(number), "question": "what?", "answers": answers} for number in range(30)]
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "the film", "qas": asked}]}]}))
    with refusal("no-data", "paragraph", "--dev"):
        load(SquadQuestions(data=str(path)), ("train", "dev"))
