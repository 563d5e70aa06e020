"""Questions from files in every form: answers sought where they stand, what is amiss told with its place."""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osbert.errors import Problems
from osbert.tasks import load
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.span.questions import Gold, Question
from questions import PARAGRAPH, answers, squad
from refusals import refusal


def read(path: Path, task: Span | None = None) -> list[Question]:
    problems = Problems(heading="")
    records = list(dataclasses.replace(task or Span(), data=str(path)).source.records("all", problems))
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
    assert remarks[1] == "the answer 'film' does not start at 40; the nearest occurrence, at 38, is used"
    assert "does not start at -1; the nearest occurrence, at 4" in remarks[2] and "at 44, is used" in remarks[3]
    assert remarks[4] == "the answer 'cinema' does not occur in the paragraph: it cannot be used for training"
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
            *[""] * 3, "an answer at 57 is empty: it is skipped", "an answer at -1 is empty: it is skipped"
        ]  # fmt: skip
        task = Span(data="x").fit(records)
        assert (
            task.unanswerable == "yes"
            and "5 questions on 1 paragraph, 4 without" in task.description.describe_split(records)
        )


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (squad(answers(("film", "4"))), ("unusable-row", "qas[0]", "q0", "'film'", "'4'")),
        (squad({"answers": "film"}), ("unusable-row", "qas[0]", "'answers'")),
        (squad({"question": " ", **answers()}), ("unusable-row", "data[0].paragraphs[0].qas[0]", "question")),
        (squad(answers(), context=""), ("unusable-row", "data[0].paragraphs[0]", "context")),
        (squad(answers(), context=7), ("unusable-row", "data[0].paragraphs[0]", "context", "7")),
        (squad(), ("no-data", "train.json")),
        ({"data": [{"title": "x"}]}, ("wrong-format", "data[0].paragraphs", "SQuAD")),
        ({"data": ["x"]}, ("wrong-format", "data[0]", "'x'")),
        ({"data": []}, ("no-data", "train.json")),
        (json.dumps(squad(answers()))[:-9], ("wrong-format", "line 1, character ", "JSON")),
        ('{"paragraphs": "x', ("wrong-format", "line 1, character 16", "JSON")),
        ([{"context_text": "x", "qas": []}], ("wrong-format", "CMRC 2018")),
    ],
)
def test_what_is_not_of_the_form_is_told_with_its_place(
    write: Callable[..., Path], content: Any, refused: tuple[str, ...]
) -> None:
    with refusal(*refused):
        read(write(content))


def test_one_paragraph_leaves_none_for_development(write: Callable[..., Path]) -> None:
    path = write(squad(*[answers(("film", 4))] * 30))
    with refusal("no-data", "paragraph", "--dev") as error:
        load(Span(data=str(path)), ("train", "dev"))
    assert "label" not in str(error.value)


def test_several_problems_are_told_at_once(write: Callable[..., Path]) -> None:
    with refusal("unusable-row", "qas[0] (id q0)", "qas[1]: ", "question"):
        read(write(squad(answers(("a", "x")), {"question": None}, answers(("film", 4)))))


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


def test_answers_that_python_or_numpy_wrote_into_a_cell(write: Callable[..., Path]) -> None:
    cells = (
        "{'text': ['film'], 'answer_start': [4]}",
        "{'text': array(['film'], dtype=object), 'answer_start': array([4], dtype=int32)}",
        "['film']",
    )
    header, paragraph = "question;context;answers\n", PARAGRAPH.replace(";", ",")
    records = read(write(header + "".join(f'what?;{paragraph};"{cell}"\n' for cell in cells), "own.csv"))
    assert [record.label for record in records] == [(Gold("film", 4),)] * 3
    with refusal("unusable-row", "line 2"):
        read(write(header + f"what?;{paragraph};{{'text': film}}\n", "own.csv"))


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_an_answer_in_another_normal_form_is_found(write: Callable[..., Path], forms: tuple[str, str]) -> None:
    paragraph = unicodedata.normalize(forms[0], "Das Café in Hà Nội, 한국")
    cells = "question;context;answer\n"
    for answer in ("Café", "hà  nội", "한국", "Cafè"):
        cells += f"what?;{paragraph};{unicodedata.normalize(forms[1], answer)}\n"
    records = read(write(cells, "own.csv"))
    wanted = [unicodedata.normalize(forms[0], answer) for answer in ("Café", "Hà Nội", "한국")]
    assert [record.label for record in records[:3]] == [(Gold(text, paragraph.index(text)),) for text in wanted]
    assert [gold.start for gold in records[3].label] == [-1]


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
        "the answer 'THE  FILM' occurs with other spaces or case; the occurrence at 0 is used",
        "the answer 'cinema' does not occur in the paragraph: it cannot be used for training",
        "",
    ]


def test_an_answer_of_which_no_start_is_told_is_sought_in_whole_words(write: Callable[..., Path]) -> None:
    texts = (
        ("5", "In 1995 he won 5 of 25 games."),
        ("art", "The party is art."),
        ("电影", "看电影，电影"),
        ("x", "axb xc"),
    )
    cells = "question;context;answer\n" + "".join(f"what?;{text};{one}\n" for one, text in texts)
    records = read(write(cells, "own.csv"))
    assert [gold.start for record in records for gold in record.label] == [15, 13, 1, 1]


def test_an_answer_that_is_null_is_not_known(write: Callable[..., Path], tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    told = [None, {"text": None}, "", [], {"text": ["film"], "answer_start": [38.0]}]
    rows = [{"question": "what?", "context": PARAGRAPH, "answers": one} for one in told]
    records = read(write("\n".join(map(json.dumps, rows)), "own.jsonl"))
    assert [record.label for record in records] == [None, None, (), (), (Gold("film", 38),)]
    assert (
        Span().description.describe_split(records)
        == "5 questions on 1 paragraph, 2 without an answer, 2 of unknown answer"
    )
    flagged = [{**rows[-1], "is_impossible": is_impossible} for is_impossible in (True, False)]
    assert [record.label for record in read(write("\n".join(map(json.dumps, flagged)), "flagged.jsonl"))] == [
        (),
        (Gold("film", 38),),
    ]
    columns = {"question": ["what?"] * 3, "context": [PARAGRAPH] * 3, "answer": [None, "", "film"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "own.parquet")
    assert [record.label for record in read(tmp_path / "own.parquet")] == [None, (), (Gold("film", 4),)]


def test_encodings_of_the_official_form(write: Callable[..., Path]) -> None:
    for encoding, said in (("utf-16", ""), ("gb18030", "gb18030"), ("utf-8-sig", "utf-8"), ("utf-16", "utf-16")):
        (record,) = read(write(squad(answers(("电影", 1)), context="《电影》"), encoding=encoding), Span(encoding=said))
        assert record.label == (Gold("电影", 1),)
    path = write(squad(answers(("film", 4))))
    for wrong, refused in (
        ("klingon", ("invalid-value", "'klingon'")),
        ("hex", ("invalid-value", "'hex'")),
        ("utf-16", ("wrong-encoding", "train.json", "utf-16")),
    ):
        with refusal(*refused):
            read(path, Span(encoding=wrong))
    with refusal("missing-file", "absent.json"):
        Span().source.inputs(path.with_name("absent.json"))


@pytest.mark.parametrize(
    ("cells", "refused"),
    [
        ("question,context\nq,p\n", ("unknown-column", "answers", "--answer NAME", "--columns.answer NAME")),
        ("question,answer\nq,p\n", ("unknown-column", "context", "--paragraph NAME", "--columns.paragraph NAME")),
        ("question,context,answer,answer_start\nq,a film,film,x\n", ("unusable-row", "line 2", "'x'")),
        ("question,context,answer\nq,a film,film,x\n", ("unusable-row", "line 2", "4 cells", "3 columns")),
        ("question,context,answer\nq,,film\n", ("unusable-row", "line 2", "context")),
        ("question,context,answer\n,,\n", ("empty-text", "line 2")),
    ],
)
def test_tables_that_cannot_be_used(write: Callable[..., Path], cells: str, refused: tuple[str, ...]) -> None:
    with refusal(*refused):
        read(write(cells, "own.csv"))


def test_a_column_that_is_not_there_is_told_with_the_nearest_and_the_options(write: Callable[..., Path]) -> None:
    with refusal("unknown-column", "frag", "frage", "--question"):
        read(write("frage,context,answer\nq,a film,film\n", "own.csv"), Span(question="frag"))
