"""span and squad: files in every form, answers sought where they stand, bad input with its place, exact targets."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.tasks import Record, load
from osbert.tasks.span import Span
from osbert.tasks.spans import Gold, Question
from osbert.tasks.spans.windows import Window
from osbert.tasks.squad import Squad
from osbert.text.tokenizer import SPECIALS, Tokenizer

PARAGRAPH = "The film was long. A good play, a bad film; the film was good."
WORDS = ("the", "film", "was", "long", ".", "a", "good", "play", ",", "bad", ";", "who", "what", "is", "?", "##s")
PACKER = Packer(tokenizer=Tokenizer([*SPECIALS, *WORDS]), length=20)


def answers(*pairs: tuple[str, Any]) -> dict[str, Any]:
    return {"answers": [{"text": text, "answer_start": start} for text, start in pairs]}


def squad(*asked: dict[str, Any], context: Any = PARAGRAPH) -> dict[str, Any]:
    qas = [{"id": f"q{place}", "question": "what is long?", **one} for place, one in enumerate(asked)]
    return {"version": "x", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: Any, name: str = "train.json", encoding: str = "utf-8", end: str = "\n") -> Path:
        text = content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False)
        (tmp_path / name).write_bytes(text.replace("\n", end).encode(encoding))
        return tmp_path / name

    return write


def read(path: Path, task: Span | None = None) -> list[Question]:
    problems = Problems(heading="")
    records = list(dataclasses.replace(task or Squad(), data=str(path)).records("all", problems))
    problems.stop_if_any()
    return records  # type: ignore[return-value]


def test_answers_are_sought_where_they_stand(write: Callable[..., Path]) -> None:
    path = write(
        squad(
            answers(("film", 4)),
            answers(("film", 40)),
            answers(("film", -1)),
            answers(("THE  film", 50)),
            answers(("cinema", 4), ("film", 4)),
            {"is_impossible": True, **answers()},
            answers(),
            {},
            {"answers": None},
            {"answers": [{"text": "film"}]},
        )
    )
    records = read(path)
    assert [record.label for record in records] == [
        (Gold("film", 4),),
        (Gold("film", 38),),
        (Gold("film", 4),),
        (Gold("the film", 44),),
        (Gold("cinema", -1), Gold("film", 4)),
        (),
        (),
        None,
        None,
        (Gold("film", 4),),
    ]
    remarks = [record.remark for record in records]
    assert not any(remarks[place] for place in (0, 5, 6, 7, 8, 9))
    assert remarks[1] == "the answer 'film' does not stand at 40; taken from 38, the nearest"
    assert "does not stand at -1; taken from 4" in remarks[2] and "taken from 44" in remarks[3]
    assert remarks[4] == "the answer 'cinema' does not stand in the paragraph: it cannot be learnt from"
    assert records[4].place == f"{path}, data[0].paragraphs[0].qas[4] (id q4)"


def test_an_empty_answer_is_none(write: Callable[..., Path]) -> None:
    told: list[list[tuple[str, Any]]] = [
        [("", -1)],
        [("", 0)],
        [("", None)],
        [("\u200b ", 57)],
        [("", -1), ("film", 4)],
    ]
    wanted: list[Any] = [(), (), (), (), (Gold("film", 4),)]
    asked = [answers(*pairs) for pairs in told]
    rows = [{"question": "what?", "context": PARAGRAPH, **one} for one in asked]
    split = [{**row, "answers": {"text": [*texts], "answer_start": [*starts]}}
             for row, (texts, starts) in zip(rows, (zip(*pairs) for pairs in told))]  # fmt: skip
    for name, content in (("a.json", squad(*asked)), ("b.jsonl", rows), ("c.jsonl", split)):
        content = content if name == "a.json" else "\n".join(map(json.dumps, content))
        records = read(write(content, name))
        assert [record.label for record in records] == wanted, name
        assert [record.remark for record in records] == [
            *[""] * 3, "an answer at 57 is empty: it is passed over", "an answer at -1 is empty: it is passed over"
        ]  # fmt: skip
        task = Squad(data="x").fitted(records)
        assert task.unanswerable == "yes" and "5 questions on 1 paragraphs, 4 without" in task.describe(records)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (squad(answers(("film", "4"))), r"qas\[0\] \(id q0\): an answer has the text 'film' at '4'"),
        (squad({"answers": "film"}), "'answers' is no list of objects"),
        (squad({"question": " ", **answers()}), r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: the question is empty"),
        (squad(answers(), context=""), r"data\[0\]\.paragraphs\[0\]: the context is empty"),
        (squad(answers(), context=7), "the context is no text but 7"),
        (squad(), "there are no questions in it"),
        ({"data": [{"title": "x"}]}, r"data\[0\]\.paragraphs: there is no such list; is it a file in SQuAD's form"),
        ({"data": ["x"]}, r"data\[0\]: 'x' is no object"),
        ({"data": []}, "there are no questions in it"),
        (json.dumps(squad(answers()))[:-9], "line 1, character [0-9]+: not JSON .* Is the file whole"),
        ([{"context_text": "x", "qas": []}], "CMRC 2018 in its first form"),
    ],
)
def test_what_is_not_of_the_form_is_told_with_its_place(write: Callable[..., Path], content: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(write(content))


def test_several_problems_are_told_at_once(write: Callable[..., Path]) -> None:
    with pytest.raises(UserError) as error:
        read(write(squad(answers(("a", "x")), {"question": None}, answers(("film", 4)))))
    assert "qas[0] (id q0)" in str(error.value) and "qas[1]: the question is empty" in str(error.value)


@pytest.mark.parametrize(("encoding", "end"), [("utf-8", "\r\n"), ("utf-8-sig", "\n"), ("utf-8-sig", "\r\n")])
def test_marks_and_line_ends_of_other_systems(write: Callable[..., Path], encoding: str, end: str) -> None:
    (record,) = read(write(squad(answers(("film", 4))), encoding=encoding, end=end))
    assert record.label == (Gold("film", 4),)
    table = f"question,context,answer\nwhat?,{PARAGRAPH.replace(',', '')},film\n"
    (record,) = read(write(table, "train.csv", encoding, end))
    assert record.label == (Gold("film", 4),) and record.texts[0] == "what?"


def test_tables_of_ones_own(write: Callable[..., Path]) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "x", "question": "q", "context": PARAGRAPH, "answers": {"text": ["film"], "answer_start": [38]}},
        {"question": "q", "context": PARAGRAPH, "answers": {"text": [], "answer_start": []}},
        {"question": "q", "context": PARAGRAPH, "answers": ["play", "film"]},
        {"question": "q", "context": PARAGRAPH, "answers": [{"text": "play", "answer_start": 25}]},
        {"question": "q", "context": PARAGRAPH, "answers": ""},
    ]
    records = read(write("\n".join(map(json.dumps, rows)), "rows.jsonl"))
    assert [record.label for record in records] == [
        (Gold("film", 38),),
        (),
        (Gold("play", 26), Gold("film", 4)),
        (Gold("play", 26),),
        (),
    ]
    assert records[0].key == "x" and records[3].place.endswith("rows.jsonl, line 4") and records[3].remark
    cells = "frage;text;antwort;ab\nwas;a film is a film;film;12\nwas;a film;;\n"
    task = Span(question="frage", paragraph="text", answer="antwort", answer_start="ab")
    assert [record.label for record in read(write(cells, "own.csv"), task)] == [(Gold("film", 12),), ()]


def test_an_answer_of_which_no_start_is_told_stands_where_it_stands_first(write: Callable[..., Path]) -> None:
    answered = ("film", "bad film", "THE  FILM", "cinema", "")
    cells = "question;context;answer\n" + "".join(f"what?;{PARAGRAPH.replace(';', ',')};{one}\n" for one in answered)
    records = read(write(cells, "own.csv"))
    assert [record.label for record in records] == [
        (Gold("film", 4),), (Gold("bad film", 34),), (Gold("The film", 0),), (Gold("cinema", -1),), ()
    ]  # fmt: skip
    assert [record.remark for record in records] == [
        "",
        "",
        "the answer 'THE  FILM' stands in the paragraph with other spaces or case; taken from 0",
        "the answer 'cinema' does not stand in the paragraph: it cannot be learnt from",
        "",
    ]


def test_an_answer_that_is_null_is_not_known(write: Callable[..., Path], tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    told = [None, {"text": None}, "", [], {"text": ["film"], "answer_start": [38.0]}]
    rows = [{"question": "what?", "context": PARAGRAPH, "answers": one} for one in told]
    records = read(write("\n".join(map(json.dumps, rows)), "own.jsonl"))
    assert [record.label for record in records] == [None, None, (), (), (Gold("film", 38),)]
    assert Span().describe(records) == "5 questions on 1 paragraphs, 2 without an answer, 2 of unknown answer"
    columns = {"question": ["what?"] * 3, "context": [PARAGRAPH] * 3, "answer": [None, "", "film"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "own.parquet")
    assert [record.label for record in read(tmp_path / "own.parquet")] == [None, (), (Gold("film", 4),)]


def test_encodings_of_the_official_form(write: Callable[..., Path]) -> None:
    for encoding, said in (("utf-16", ""), ("gb18030", "gb18030"), ("utf-8-sig", "utf-8"), ("utf-16", "utf-16")):
        (record,) = read(
            write(squad(answers(("电影", 1)), context="《电影》"), encoding=encoding), Squad(encoding=said)
        )
        assert record.label == (Gold("电影", 1),)
    path = write(squad(answers(("film", 4))))
    for wrong, message in (
        ("klingon", "There is no encoding called 'klingon'"),
        ("hex", "There is no encoding called 'hex'"),
        ("utf-16", "does not begin as utf-16 text does, with a mark"),
    ):
        with pytest.raises(UserError, match=message):
            read(path, Squad(encoding=wrong))
    with pytest.raises(UserError, match=r"absent\.json: no such file"):
        Squad().inputs(path.with_name("absent.json"))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("question,context\nq,p\n", "none is called answers: give --answer NAME"),
        ("question,answer\nq,p\n", "none is called context: give --paragraph NAME"),
        ("question,context,answer,answer_start\nq,a film,film,x\n", "line 2: the answer's start 'x' is not a whole"),
        ("question,context,answer\nq,a film,film,x\n", "line 2: 4 cells, but there are 3 columns"),
        ("question,context,answer\nq,,film\n", "line 2: the context is empty"),
        ("question,context,answer\n,,\n", "line 2: the text is empty"),
    ],
)
def test_tables_that_cannot_be_used(write: Callable[..., Path], cells: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(write(cells, "own.csv"))


def test_paragraphs_are_held_out_whole(write: Callable[..., Path]) -> None:
    content = squad()
    content["data"][0]["paragraphs"] = [
        squad(*[answers(("film", 2))] * 3, context=f"a film {place}")["data"][0]["paragraphs"][0] for place in range(20)
    ]
    task, records = load(Squad(data=str(write(content))).resolved(), ("train", "dev"))
    apart = [{record.texts[1] for record in records[split]} for split in ("train", "dev")]
    assert [len(found) for found in apart] == [18, 2] and not apart[0] & apart[1]
    assert (task.unanswerable, task.scoring, task.criterion) == ("no", "words", "f1")
    assert any("10% of the paragraphs are held out" in line for line in task.findings())
    assert task.describe(records["dev"]) == "6 questions on 2 paragraphs"


def test_what_is_learnt_from_the_training_questions() -> None:
    def fitted(*labels: Any) -> Span:
        return Span().fitted([Question(number=0, texts=("q", "p"), label=label) for label in labels])

    assert fitted((Gold("film", 0),), ()).unanswerable == "yes"
    assert fitted((Gold("film", 0),), ()).criterion == "f1"
    assert fitted((Gold("中文", 0),)).scoring == "characters"
    with pytest.raises(UserError, match="none of the training questions has an answer"):
        fitted((Gold("film", -1),), ())


def said(window: Window, record: Record) -> str | None:
    """Return the text that a window's target points to, "" for [CLS]."""
    target = window.targets["span"]
    assert target.labels.tolist() == [0, 1] and target.index is not None
    first, last = (int(token) - window.first for token in target.index)
    if first < 0:
        assert target.index.tolist() == [0, 0]
        return ""
    return record.texts[1][window.starts[first] : window.ends[last]]


def test_targets_point_to_the_answer_in_every_window_that_has_it_all() -> None:
    record = Question(number=3, texts=("who is long?", PARAGRAPH), label=(Gold("the film", 44), Gold("film", 4)))
    task = Span(stride=4)
    windows = task.encode(record, PACKER)
    assert all(isinstance(window, Window) and window.record == 3 for window in windows)
    found = [said(window, record) for window in windows if isinstance(window, Window)]
    assert set(found) == {"", "the film"} and len(found) > 2
    none = dataclasses.replace(record, label=())
    assert {said(window, none) for window in task.encode(none, PACKER) if isinstance(window, Window)} == {""}
    for label in (None, (Gold("x", -1),), (Gold("\u200b", 3),)):
        lost = dataclasses.replace(record, texts=("who?", "\u200b \u200b\u200b film"), label=label)
        assert not any(window.targets for window in task.encode(lost, PACKER))
    with pytest.raises(UserError, match="reads a question and a paragraph, not 1"):
        task.encode(Record(number=0, texts=("x",)), PACKER)


def test_chinese_is_read_and_scored_by_character() -> None:
    paragraph = "《战国无双3》是由光荣公司开发的游戏，2009年发售。"
    tokenizer = Tokenizer([*SPECIALS, *dict.fromkeys("《战国无双》是由光荣公司开发的游戏，年售谁？。"), "2009", "3"])
    packer = Packer(tokenizer=tokenizer, length=16)
    record = Question(number=0, texts=("由谁开发？", paragraph), label=(Gold("光荣公司", 9),))
    task = Span(stride=3).fitted([record])
    assert task.scoring == "characters"
    windows = [window for window in task.encode(record, packer) if isinstance(window, Window)]
    assert {said(window, record) for window in windows} == {"光荣公司", ""}
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
    assert Span(question_length=5).cuts(records, PACKER) == (
        "1 of 2 questions are longer than 5 pieces; their ends are not read. --question-length N changes this."
    )
    assert Span().cuts(records[:1], PACKER) == ""


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
        scores[window.first if isinstance(window, Window) else 0] = bias
        predictions.append(task.decode([scores], record, [window]))
    assert [one.value for one in predictions] == ["film", "film"]
    tuned = task.tuned(predictions, records)
    assert 2 < tuned.threshold < 6 and task.metrics(predictions, records)["best_f1"] == 1
    scores = task.metrics(task.decided(predictions, records), records)
    assert scores["f1"] == scores["best_f1"] == 1 and scores["untuned_f1"] < 1
    assert Span(unanswerable="no").tuned(predictions, records).threshold == 0


def test_the_official_files(data: Path) -> None:
    sizes = {"1.1": (4000, 500, 0), "2.0": (3112, 1227, 1622)}
    for release, (train, dev, without) in sizes.items():
        task = Squad(data=str(data / "squad"), release=release).resolved()  # type: ignore[arg-type]
        task, records = load(task, ("train", "dev"))
        assert (len(records["train"]), len(records["dev"])) == (train, dev)
        assert sum(record.label == () for record in records["train"]) == without
        assert task.unanswerable == ("yes" if without else "no")
    with pytest.raises(UserError, match=r"Give --release 1\.1 or 2\.0"):
        load(Squad(data=str(data / "squad")), ("train",))
    (german,) = load(Squad(data=str(data / "squad" / "xquad.de.json")), ("all",))[1].values()
    for record in german:
        assert record.label and not record.remark
        assert all(record.texts[1].startswith(gold.text, gold.start) for gold in record.label)
