"""span and squad: what is learnt from questions, exact targets, what is too long, the official files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osbert.data.pack import Packer
from osbert.data.record_loader import OnDemand
from osbert.evaluation.score import constant_answer
from osbert.runs.finetune.rows import TaskRows
from osbert.tasks import Record, findings, load
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.span.questions import AnswerCandidate, AnswerPrediction, Gold, Question
from osbert.tasks.kinds.span.windows import QuestionWindow
from osbert.text.tokenizer import SPECIALS, Tokenizer
from questions import PARAGRAPH, answers, pointed_text, squad
from refusals import refusal

WORDS = ("the", "film", "was", "long", ".", "a", "good", "play", ",", "bad", ";", "who", "what", "is", "?", "##s")
PACKER = Packer(tokenizer=Tokenizer([*SPECIALS, *WORDS]), length=20)


def test_paragraphs_are_held_out_whole(write: Callable[..., Path]) -> None:
    content = squad()
    content["data"][0]["paragraphs"] = [
        squad(*[answers(("film", 2))] * 3, context=f"a film {place}")["data"][0]["paragraphs"][0] for place in range(20)
    ]
    task, records = load(Span(data=str(write(content))).source.resolve(), ("train", "dev"))
    apart = [{record.texts[1] for record in records[split]} for split in ("train", "dev")]
    assert [len(found) for found in apart] == [18, 2] and not apart[0] & apart[1]
    assert (task.unanswerable, task.scoring, task.criterion) == ("no", "words", "f1")
    assert any("10% of the paragraphs are held out" in line for line in findings(task))
    assert task.description.describe_split(records["dev"]) == "6 questions on 2 paragraphs"


def test_questions_of_unknown_answer_are_neither_held_out_nor_lost(write: Callable[..., Path]) -> None:
    rows = [{"question": "what?", "context": f"a film {place}", "answer": None if place % 2 else "film"}
            for place in range(40)]  # fmt: skip
    path = write("\n".join(map(json.dumps, rows)), "own.jsonl")
    task, records = load(Span(data=str(path)), ("train", "dev"))
    assert records["dev"] and all(record.label is not None for record in records["dev"])
    rows_read = TaskRows.of(task, records, PACKER)
    assert len(rows_read.training) + len(records["dev"]) == len(rows_read.remarks) == 20
    assert rows_read.remarks[0] == f"{path}, line 2: its label is not known: it is not learnt from"


def test_what_is_learnt_from_the_training_questions() -> None:
    def fitted(*labels: Any) -> Span:
        return Span().fit([Question(number=0, texts=("q", "p"), label=label) for label in labels])

    assert fitted((Gold("film", 0),), ()).unanswerable == "yes"
    assert fitted((Gold("film", 0),), ()).criterion == "f1"
    assert fitted((Gold("中文", 0),)).scoring == "characters"
    with refusal("nothing-to-learn"):
        fitted((Gold("film", -1),), ())


def test_targets_point_to_the_answer_in_every_window_that_has_it_all() -> None:
    record = Question(number=3, texts=("who is long?", PARAGRAPH), label=(Gold("the film", 44), Gold("film", 4)))
    task = Span(stride=4)
    windows = task.encode(record, PACKER)
    assert all(isinstance(window, QuestionWindow) and window.record == 3 for window in windows)
    found = [pointed_text(window, record) for window in windows if isinstance(window, QuestionWindow)]
    assert set(found) == {"", "the film"} and len(found) > 2
    none = dataclasses.replace(record, label=())
    assert {
        pointed_text(window, none) for window in task.encode(none, PACKER) if isinstance(window, QuestionWindow)
    } == {""}
    for label in (None, (Gold("x", -1),), (Gold("\u200b", 3),)):
        lost = dataclasses.replace(record, texts=("who?", "\u200b \u200b\u200b film"), label=label)
        assert not any(window.targets for window in task.encode(lost, PACKER))
    with refusal("wrong-number-of-texts", "1"):
        task.encode(Record(number=0, texts=("x",)), PACKER)


def test_chinese_is_read_and_scored_by_character() -> None:
    paragraph = "《战国无双3》是由光荣公司开发的游戏，2009年发售。"
    tokenizer = Tokenizer([*SPECIALS, *dict.fromkeys("《战国无双》是由光荣公司开发的游戏，年售谁？。"), "2009", "3"])
    packer = Packer(tokenizer=tokenizer, length=16)
    record = Question(number=0, texts=("由谁开发？", paragraph), label=(Gold("光荣公司", 9),))
    task = Span(stride=3).fit([record])
    assert task.scoring == "characters"
    windows = [window for window in task.encode(record, packer) if isinstance(window, QuestionWindow)]
    assert {pointed_text(window, record) for window in windows} == {"光荣公司", ""}
    answer = task.decode([np.zeros((len(window), 2)) for window in windows], record, windows)
    assert paragraph[answer.chosen.start : answer.chosen.end] == answer.value
    near = [dataclasses.replace(answer, value="由光荣公司，")]
    assert task.metrics(near, [record]) == {"exact": 0.0, "f1": pytest.approx(8 / 9)}


def test_every_setting_has_an_effect() -> None:
    record = Question(number=0, texts=("who is a good film ?", PARAGRAPH))

    def answer(task: Span) -> Any:
        windows = task.encode(record, PACKER)
        rng = np.random.default_rng(0)
        return task.decode([rng.normal(size=(len(window), 2)) for window in windows], record, windows)

    plain = Span(unanswerable="yes")
    assert len(plain.encode(record, PACKER)) < len(Span(stride=2).encode(record, PACKER))
    assert plain.encode(record, PACKER)[0].truncated == 0 < Span(question_length=2).encode(record, PACKER)[0].truncated
    for changed in ({"answer_length": 1}, {"candidates": 1}, {"threshold": 99.0}, {"unanswerable": "no"}):
        assert answer(dataclasses.replace(plain, **changed)) != answer(plain), changed
    assert answer(dataclasses.replace(plain, threshold=99.0)).value == ""
    one = dataclasses.replace(record, label=(Gold("中文", 0),))
    said = [dataclasses.replace(answer(plain), value="中")]
    words, characters = (Span(scoring=way).metrics(said, [one])["f1"] for way in ("words", "characters"))
    assert words == 0 < characters
    for wrong in ({"stride": 0}, {"question_length": 0}, {"answer_length": 0}, {"candidates": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            Span(**wrong)


def test_questions_that_are_too_long_are_told() -> None:
    records = [Question(number=0, texts=("film " * count, PARAGRAPH)) for count in (2, 9)]
    assert Span(question_length=5).description.cuts(records, PACKER) == (
        "1 of 2 questions are longer than 5 pieces; their ends are not read. --question-length N changes this."
    )
    assert Span().description.cuts(records[:1], PACKER) == ""
    assert "longer than 8 pieces, half of a sequence; their ends are not read. --length N" in Span().description.cuts(
        records, PACKER
    )
    task, training = Span(question_length=5), OnDemand(records[:1], lambda record: Span().encode(record, PACKER))
    rows: dict[str, Any] = {"packer": PACKER, "development": records, "fingerprint": "", "remarks": ()}
    short = TaskRows(task=task, encoded=training, training=records[:1], **rows)
    assert short.truncation.startswith("dev: 1 of 2 questions are longer than 5 pieces")
    both = TaskRows(task=task, encoded=training, training=records, **rows)
    assert [line[:12] for line in both.truncation.splitlines()] == ["train: 1 of ", "dev: 1 of 2 "]


def test_the_threshold_is_tuned_for_f1() -> None:
    records = [
        Question(number=0, texts=("q", "film"), label=(Gold("film", 0),)),
        Question(number=1, texts=("q", "film"), label=()),
    ]
    task = Span(unanswerable="yes")
    predictions = []
    for record, bias in zip(records, (3.0, 1.0)):
        (window,) = task.encode(record, PACKER)
        scores = np.zeros((len(window), 2))
        scores[window.first if isinstance(window, QuestionWindow) else 0] = bias
        predictions.append(task.decode([scores], record, [window]))
    assert [one.value for one in predictions] == ["film", "film"]
    tuned, _ = task.tune(predictions, records)
    assert 2 < tuned.threshold < 6 and task.metrics(predictions, records)["best_f1"] == 1
    scores = task.metrics(task.at_best(predictions, records), records)
    assert scores["f1"] == scores["best_f1"] == 1 and scores["untuned_f1"] < 1
    assert Span(unanswerable="no").tune(predictions, records)[0].threshold == 0


def test_a_collapse_is_told_in_words() -> None:
    labels = [(), (Gold("p", 0),)]
    records = [Question(number=number, texts=("q", "p"), label=label) for number, label in enumerate(labels)]

    def said_of(value: str) -> AnswerPrediction:
        return AnswerPrediction(value=value, chosen=AnswerCandidate(text=value, start=0, end=1, score=0.0))

    def said(*values: str) -> str:
        return constant_answer(Span(), [said_of(value) for value in values], records)

    assert said("", "") == "answered with 'no answer'" and said("p", "p") == "answered with 'p'" and said("", "p") == ""
