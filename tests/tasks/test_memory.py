"""Rows in memory: the same records, splits and messages as those of a file, whatever holds them."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from osbert.errors import Problems
from osbert.reading.memory import tables
from osbert.tasks import Record, Task, findings, load, with_data
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.contrastive import Contrastive
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.rerank import Rerank
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.tag import Tag
from refusals import refusal

TEXTS = [{"text": f"film {n}", "label": ("neg", "pos")[n % 2]} for n in range(20)]
PAIRS = [{"text_a": f"a {n}", "text_b": f"b {n}", "label": ("neg", "pos")[n % 2]} for n in range(20)]
SCORES = [{"text": f"film {n}", "score": n / 2} for n in range(20)]
TAGS = [{"tokens": ["in", f"City{n}", "."], "tags": ["O", "B-LOC", "O"]} for n in range(20)]
MARKED = [{"text": "in Rome .", "entities": [{"start": 3, "end": 7, "type": "LOC"}]} for _ in range(20)]
QUESTIONS = [
    {"question": "who?", "context": f"it was Ann {n}", "answers": {"text": ["Ann"], "answer_start": [7]}, "id": str(n)}
    for n in range(20)
]
CHOICES = [{"context": "he", "choices": ["runs", "sits", "eats"], "label": n % 3} for n in range(20)]
KINDS: dict[str, tuple[Task, Sequence[Mapping[str, Any]]]] = {
    "classify": (Classify(), TEXTS),
    "pairs": (Classify(), PAIRS),
    "regress": (Regress(), SCORES),
    "contrastive": (Contrastive(), [{"text": f"film {n}"} for n in range(20)]),
    "tag": (Tag(), TAGS),
    "marked": (Tag(), MARKED),
    "span": (Span(), QUESTIONS),
}

if importlib.util.find_spec("osbert_lab"):
    from osbert_lab.multiple_choice.choose import Choose

    KINDS["choose"] = Choose(), CHOICES


class Frame:
    """What pandas' DataFrame is known by."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows, self.columns = rows, [*rows[0]]

    def to_dict(self, orient: str) -> list[Mapping[str, Any]]:
        assert orient == "records"
        return [*self.rows]


class Polars:
    """What polars' DataFrame is known by; it has a to_dict of its own, too."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows, self.columns = rows, [*rows[0]]

    def to_dict(self) -> None:
        raise AssertionError("its columns, not its rows")

    def iter_rows(self, *, named: bool) -> Iterator[Mapping[str, Any]]:
        assert named
        return iter(self.rows)


class Classes:
    """What datasets' ClassLabel is known by."""

    names = ("neg", "pos")


class Dataset:
    """What datasets.Dataset is known by."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        features: Mapping[str, Any] | None = None,
        shown_as: Callable[[Sequence[Mapping[str, Any]]], Any] | None = None,
    ) -> None:
        """Keep the rows; `shown_as`: what makes a table of each of them, as with_format("pandas") does."""
        self.rows, self.column_names, self.features = rows, [*rows[0]], features or {}
        self.shown_as = shown_as

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows) if self.shown_as is None else (self.shown_as([row]) for row in self.rows)


class FormattedDataset(Dataset):
    """A data set with a format, by whose type its rows are tables of one row."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], features: Mapping[str, Any]) -> None:
        super().__init__(rows, features, Frame)
        self.format = {"type": "pandas", "columns": self.column_names}

    def with_format(self, kind: str | None, columns: Sequence[str]) -> Dataset:
        assert kind is None and columns == self.column_names
        return Dataset(self.rows, self.features)


def read(task: Task, data: Any, splits: Sequence[str] = ("train", "dev")) -> dict[str, list[tuple[Any, Any]]]:
    """Return the texts and labels of each split."""
    _, records = load(with_data(task, data).source.resolve(), splits)
    return {split: [(record.texts, record.label) for record in found] for split, found in records.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_memory_are_read_as_those_of_a_file(kind: str, tmp_path: Path) -> None:
    task, rows = KINDS[kind]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    theirs = read(task, path)
    assert len(theirs["train"]) + len(theirs["dev"]) == 20 and theirs["dev"]
    assert read(task, rows) == theirs
    assert read(task, iter(rows)) == theirs
    assert read(task, Frame(rows)) == theirs
    assert read(task, Polars(rows)) == theirs
    assert read(task, Dataset(rows)) == theirs
    splits = read(task, {"train": rows[:15], "validation": Frame(rows[15:]), "unsupervised": [{"no": 1}]})
    assert (len(splits["train"]), len(splits["dev"])) == (15, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_findings_and_plain_input_of_rows_in_memory(kind: str) -> None:
    task, rows = KINDS[kind]
    fitted, _ = load(with_data(task, rows).source.resolve(), ("train", "dev"))
    said = "\n".join(findings(fitted))
    assert "the data: rows in memory" in said and "held out" in said
    (table,) = tables(rows).values()
    found = [record for _, record in fitted.source.inputs(table).rows(Problems(heading="")) if record]
    assert len(found) == 20 and {record.label for record in found} <= {None, 1.0}
    pairs = [{"sentence1": "a", "sentence2": "b", "score": n / 2} for n in range(4)]
    moved = fitted.source.switch_data(tables(pairs if kind == "contrastive" else rows[:4]), {})
    _, records = load(moved, ("all",), fit=False)
    assert len(records["all"]) == 4


def test_tuples_and_texts_are_rows() -> None:
    assert read(Classify(), [(row["text"], row["label"]) for row in TEXTS]) == read(Classify(), TEXTS)
    assert read(Regress(), [(row["text"], row["score"]) for row in SCORES]) == read(Regress(), SCORES)
    assert read(Classify(), [tuple(row.values()) for row in PAIRS]) == read(Classify(), PAIRS)
    assert read(Tag(), [(row["tokens"], row["tags"]) for row in TAGS]) == read(Tag(), TAGS)
    assert len(read(Contrastive(), ["film", "play", "song"])["train"]) == 2


@pytest.mark.parametrize("column", [list, tuple, np.array, lambda values: np.array(values, dtype=object)])
def test_a_dict_of_columns_has_rows(column: Callable[[list[Any]], Any]) -> None:
    for kind in ("classify", "regress", *(["tag"] if column in (list, tuple) else [])):
        task, rows = KINDS[kind]
        columns = {name: column([row[name] for row in rows]) for name in rows[0]}
        assert read(task, columns) == read(task, rows)
        assert read(task, {"train": columns, "dev": rows}) == read(task, {"train": rows, "dev": rows})


def test_texts_by_split_are_no_columns() -> None:
    assert len(read(Contrastive(), {"train": ["film", "play", "song"], "dev": ["a", "b", "c"]})["train"]) == 3


def test_a_table_of_numpy_has_rows() -> None:
    pairs = [(row["text"], row["label"]) for row in TEXTS]
    assert (
        read(Classify(), np.array(pairs)) == read(Classify(), np.array(pairs, dtype=object)) == read(Classify(), pairs)
    )


@dataclass
class LabelledText:
    """A row as a program of one's own has it."""

    text: str
    label: str


def test_data_classes_are_rows() -> None:
    assert read(Classify(), [LabelledText(**row) for row in TEXTS]) == read(Classify(), TEXTS)


def test_rows_of_a_database_are_rows() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        database.execute("create table reviews (text, label)")
        database.executemany("insert into reviews values (:text, :label)", TEXTS)
        rows = database.execute("select * from reviews").fetchall()
    assert read(Classify(), rows) == read(Classify(), TEXTS)


class Opinion(Enum):
    """Labels as a program of one's own has them."""

    GOOD = "pos"
    BAD = "neg"


class TextOpinion(str, Enum):  # noqa: UP042 - as programs from before StrEnum write it
    """Labels that are strings, too."""

    GOOD = "pos"
    BAD = "neg"


@pytest.mark.parametrize("kind", [Opinion, TextOpinion])
def test_a_member_of_an_enum_is_its_value(kind: Callable[[str], Any]) -> None:
    rows = [{"text": row["text"], "label": kind(row["label"])} for row in TEXTS]
    assert read(Classify(), rows) == read(Classify(), TEXTS)


@pytest.mark.lab
def test_tuples_are_a_context_and_its_choices() -> None:
    task, rows = KINDS["choose"]
    assert read(task, [tuple(row.values()) for row in rows]) == read(task, rows)
    with refusal("unusable-row", "row 1: ", "'7'", "3"):
        read(task, [{**rows[0], "label": 7}])


def test_settings_name_columns() -> None:
    rows = [{"body": row["text"], "other": "x", "verdict": row["label"]} for row in TEXTS]
    assert read(Classify(text="body", label="verdict"), rows) == read(Classify(), TEXTS)


def test_numpys_values_are_those_of_python_and_what_is_missing_is_empty() -> None:
    rows = [{"text": np.str_("film"), "label": np.int64(n % 2), "more": float("nan")} for n in range(4)]
    assert {label for _, label in read(Classify(), rows)["train"]} == {"0", "1"}
    arrays = [{"tokens": np.array(row["tokens"]), "tags": np.array(row["tags"])} for row in TAGS]
    assert read(Tag(), arrays) == read(Tag(), TAGS)
    with refusal("missing-label", "2"):
        read(Classify(), [*TEXTS[:1], {"text": "x", "label": float("nan")}, *TEXTS])


def test_classes_of_a_data_set_go_by_their_names() -> None:
    rows = [{"text": row["text"], "label": ("neg", "pos").index(row["label"])} for row in TEXTS]
    assert read(Classify(), Dataset(rows, {"label": Classes()})) == read(Classify(), TEXTS)
    nothing = Dataset([*rows, {"text": "x", "label": -1}], {"label": Classes()})
    with refusal("missing-label", "21"):
        read(Classify(), nothing)


def test_classes_go_by_their_names_where_cells_are_arrays() -> None:
    rows = [{"text": row["text"], "label": np.array(("neg", "pos").index(row["label"]))} for row in TEXTS]
    assert read(Classify(), Dataset(rows, {"label": Classes()})) == read(Classify(), TEXTS)


def test_a_data_set_whose_rows_are_tables_is_read_by_its_plain_rows() -> None:
    rows = [{"text": row["text"], "label": ("neg", "pos").index(row["label"])} for row in TEXTS]
    assert read(Classify(), FormattedDataset(rows, {"label": Classes()})) == read(Classify(), TEXTS)


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        ((Decimal("1.5"), Decimal(2)), {"1.5", "2"}),
        ((date(2020, 1, 2), date(2021, 1, 2)), {"2020-01-02", "2021-01-02"}),
        ((b"neg", "fein \xe4".encode()), {"neg", "fein \xe4"}),
    ],
)
def test_a_cell_that_json_does_not_have_is_read_as_its_text(cells: tuple[Any, Any], labels: set[str]) -> None:
    rows = [{"text": f"film {n}", "label": cells[n % 2]} for n in range(20)]
    assert {label for _, label in read(Classify(), rows)["train"]} == labels


def test_columns_of_one_name_are_refused() -> None:
    frame = Frame(TEXTS)
    frame.columns = ["text", "label", "label"]
    with refusal("duplicate-name", "label"):
        read(Classify(), frame)


def test_messages_name_the_row_and_where_there_are_several_its_split() -> None:
    with refusal("unusable-row", "  - row 3: ", "'x'"):
        read(Regress(), [*SCORES[:2], {"text": "a", "score": "x"}])
    dev = ("dev, row 1: ", "'poss'", "neg, pos", "'pos'")
    with refusal("empty-text", "the data", "classify", "train, row 21: ", *dev) as error:
        read(Classify(), {"train": [*TEXTS, {"text": " ", "label": "pos"}], "dev": [("a", "poss")]})
    assert error.value.codes == ("empty-text", "unknown-label")
    data: Any
    for task, data, values in (
        (Tag(), [{"tokens": ["a", "b"], "tags": ["O"]}], ("row 1: 2", "'tokens'", "1", "'tags'")),
        (Tag(), [{"tokens": ["a"], "tags": ["Q-X"]}], ("row 1: ", "'Q-X'", "O")),
        (Span(), [*QUESTIONS[:1], {**QUESTIONS[1], "question": ""}], ("row 2: ", "question")),
    ):
        with refusal("unusable-row", *values):
            read(task, data)
    with refusal("unknown-column", "the data", "'a', 'b'"):
        read(Classify(), [{"a": "x", "b": "y"}])
    with refusal("missing-split", "the data", "train", "dev"):
        read(Classify(), {"dev": TEXTS})


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        ([], ("no-data", "The data")),
        ({"train": []}, ("no-data", "The train data")),
        (3, ("wrong-format", "int", "Give a path")),
        (b"text", ("wrong-format", "bytes")),
        ([("a",)], ("unusable-row", "row 1: ('a',)", "Give a path")),
        ([3.5, *TEXTS], ("unusable-row", "row 1: 3.5")),
        ({"text": "a", "label": "b"}, ("missing-split", "train, dev or test", "text, label")),
        ({"text": [*"abc"], "label": [*"xy"]}, ("missing-split", "text, label")),
        ({"dev": TEXTS, "validation": TEXTS}, ("missing-split", "dev, validation")),
    ],
)
def test_what_is_no_data_is_refused_with_what_to_give(data: Any, refused: tuple[str, ...]) -> None:
    with refusal(*refused):
        read(Classify(), data)


def test_a_split_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("text,label\nx,pos\n")
    assert read(Classify(), {"train": TEXTS, "dev": tmp_path / "more.csv"})["dev"] == [(("x",), "pos")]


@pytest.mark.parametrize("kind", ["classify", "tag", "span", pytest.param("choose", marks=pytest.mark.lab), "regress"])
def test_rows_of_a_frame_have_the_numbers_of_its_index(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    task, rows = KINDS[kind]
    frame = pandas.DataFrame(list(rows), index=[7 * number % 20 for number in range(20)])
    problems = Problems(heading="")
    found = list(with_data(task, frame).source.records("all", problems))
    assert [record.line for record in found] == frame.index.tolist() and not problems.count
    assert found[0].place.endswith("index 0") and found[1].place.endswith("index 7")
    for index in ([f"row {number}" for number in range(20)], [0] * 20, [number / 2 for number in range(20)]):
        records = with_data(task, pandas.DataFrame(list(rows), index=index)).source.records("all", problems)
        assert [record.line for record in records] == list(range(1, 21))


@pytest.mark.parametrize(
    ("task", "row", "texts"),
    [
        (Classify(), {"doc": "a film", "label": "pos"}, ("a film",)),
        (Classify(), {"doc": "17", "text": "a film", "label": "pos"}, ("a film",)),
        (Span(), {"question": "what?", "doc": "a film", "answer": "film"}, ("what?", "a film")),
        (Rerank(), {"query": "what?", "doc": "a film", "label": 1}, ("what?", "a film")),
        (Rerank(), {"query": "what?", "doc": "17", "text": "a film", "label": 1}, ("what?", "a film")),
    ],
)
def test_doc_is_a_document_where_no_other_column_is(task: Task, row: dict[str, Any], texts: tuple[str, ...]) -> None:
    source = with_data(task, [row]).source
    [record] = source.resolve().source.records("all", Problems(heading=""))
    assert record.texts == texts


def test_messages_name_the_index_of_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "", "c"], "label": ["pos", "neg", "pos"]}, index=[30, 10, 20])
    with refusal("empty-text", "index 10: "):
        read(Classify(), frame)
    with refusal("empty-text", "train, index 10: "):
        read(Classify(), {"train": frame, "dev": TEXTS})


def test_a_record_in_memory_says_its_row() -> None:
    assert Record(number=0, texts=("x",), line=0, unit="index").place == "index 0"
    assert Record(number=0, texts=("x",), line=3, unit="row").place == "row 3"
    assert Record(number=0, texts=("x",), path="dev", line=3, unit="row").place == "dev, row 3"


class Labelled(NamedTuple):
    Index: int
    label: str
    text: str


def test_the_names_of_named_tuples_say_what_their_parts_are() -> None:
    rows = [Labelled(number, row["label"], row["text"]) for number, row in enumerate(TEXTS)]
    assert read(Classify(), rows) == read(Classify(), TEXTS)


def test_sets_of_labels_are_lists() -> None:
    rows = [{"text": f"film {n}", "labels": {"war", "art"} if n % 2 else frozenset({"art"})} for n in range(20)]
    lists = [{**row, "labels": [*row["labels"]]} for row in rows]  # type: ignore[misc]
    assert read(Multilabel(), rows) == read(Multilabel(), lists)


@pytest.mark.parametrize("kind", ["classify", "tag", "span"])
@pytest.mark.parametrize("library", ["pandas", "polars", "datasets"])
def test_the_libraries_own_tables(library: str, kind: str) -> None:
    module = pytest.importorskip(library)
    task, rows = KINDS[kind]
    made = {"pandas": "DataFrame", "polars": "DataFrame"}.get(library)
    data = getattr(module, made)(list(rows)) if made else module.Dataset.from_list(list(rows))
    assert read(task, data) == read(task, rows)
