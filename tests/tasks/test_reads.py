"""How often a file is opened before training, and how often it is read whole."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from osbert.reading import compression, data_file
from osbert.tasks import Task, findings, load
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.contrastive import Contrastive
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.tag import Tag

ROWS = 4000


class Counts:
    """Counts what the one opener of files gives: streams, and those that were read to their end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = self.whole = 0
        real = compression.decompress

        def counted(raw: BinaryIO, name: str, **settings: Any) -> compression.Stream:
            stream = real(raw, name, **settings)
            self.opened += 1
            read = stream.read

            def reading(size: int = -1) -> bytes:
                data = read(size)
                self.whole += not data
                return data

            stream.read = reading  # type: ignore[method-assign]
            return stream

        monkeypatch.setattr(compression, "decompress", counted)
        monkeypatch.setattr(data_file, "SMALL", 0)  # smaller files are opened once and kept in memory


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


def before_training(task: Task) -> None:
    fitted, records = load(task.source.resolve(), ("train", "dev"))
    findings(fitted)
    assert sum(map(len, records.values())) == ROWS


def table(delimiter: str, suffix: str) -> Callable[[Path], Path]:
    def written(folder: Path) -> Path:
        path = folder / f"data{suffix}"
        lines = [f"a film that is number {n}{delimiter}{('neg', 'pos')[n % 2]}" for n in range(ROWS)]
        path.write_text("\n".join([f"text{delimiter}label", *lines]) + "\n")
        return path

    return written


def lines(**row: Any) -> Callable[[Path], Path]:
    def written(folder: Path) -> Path:
        path = folder / "data.jsonl"
        path.write_text("".join(json.dumps({**row, "more": n}) + "\n" for n in range(ROWS)))
        return path

    return written


def texts(folder: Path) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps({"text": f"a {n}", "more": n}) + "\n" for n in range(ROWS)))
    return path


def columns(folder: Path) -> Path:
    path = folder / "data.conll"
    path.write_text("in O\nRome B-LOC\nfor O\nyears O\n\n" * ROWS)
    return path


def squad(folder: Path) -> Path:
    asked = [
        {"id": str(n), "question": "who?", "answers": [{"text": "Ann", "answer_start": 0}]} for n in range(ROWS // 2)
    ]
    paragraphs = [{"context": f"Ann {n}", "qas": asked} for n in range(2)]
    path = folder / "data.json"
    path.write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}))
    return path


WITH_LAB = importlib.util.find_spec("osbert_lab") is not None
"""Whether WebAnno's form is there, which looks at the beginning of a .tsv."""
CHOICE = {"context": "he", "choices": ["runs", "sits"]}
# A .tsv and a JSON file are looked at for the forms of annotation tools: its beginning, and the first JSON objects.
CASES: dict[str, tuple[Callable[..., Task], Callable[[Path], Path], int, int]] = {
    "CSV": (Classify, table(",", ".csv"), 2, 1),
    "TSV, whose quotes are found by reading it": (Classify, table("\t", ".tsv"), 2 + WITH_LAB, 2),
    "JSON lines": (Classify, lines(text="a", label="b"), 4, 1),
    "texts": (Contrastive, texts, 4, 1),
    "tags": (Tag, columns, 1, 1),
    "SQuAD's form": (Span, squad, 1, 1),
}

if WITH_LAB:
    from osbert_lab.multiple_choice.choose import Choose

    CASES["choices, whose labels are looked at first"] = Choose, lines(**CHOICE, label="1"), 5, 2


@pytest.mark.parametrize("case", CASES)
def test_a_file_is_read_once_and_its_form_is_kept(case: str, tmp_path: Path, counts: Counts) -> None:
    kind, written, opened, whole = CASES[case]
    settings: dict[str, Any] = {"skip_empty": True} if kind is Classify else {}
    path = written(tmp_path)
    if kind is Classify and path.suffix == ".jsonl":
        path.write_text(path.read_text().replace('"b", "more": 1', '"c", "more": 1'))
    if case.startswith("choices"):
        path.write_text(path.read_text().replace('"1", "more": 1', '"0", "more": 1'))
    before_training(kind(data=str(path), **settings))
    assert (counts.opened, counts.whole) == (opened, whole)
    assert whole <= 3


def test_a_file_that_has_changed_is_looked_at_again(tmp_path: Path, counts: Counts) -> None:
    path = table(",", ".csv")(tmp_path)
    task = Classify(data=str(path)).source.resolve()
    opened = counts.opened
    assert task.source.open(path).columns == ("text", "label") and counts.opened == opened  # type: ignore[attr-defined]
    path.write_text("text;verdict\na;b\n")
    assert task.source.open(path).columns == ("text", "verdict") and counts.opened > opened  # type: ignore[attr-defined]
