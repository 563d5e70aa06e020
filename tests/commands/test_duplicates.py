"""osbert duplicates and osbert topics: from texts or vectors to tables and a page, and what they refuse."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import osbert
from osbert.runs.topics.words import topic_words
from refusals import refusal
from terminal import run as terminal_run

TEXTS = ["a good film", "bad", "the plays , the actor", "bad", "poor actor", "a good film", "bad"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text("n,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS)))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_duplicates_of_texts_and_of_their_vectors(
    encoder: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.csv"
    assert terminal_run("duplicates", table, "--model", encoder, "--above", "0.9999", "--out", out) == 0
    said = capsys.readouterr().out
    assert "7 texts: 3 repeat an earlier one, in 2 groups" in said and "line 3, again in 5, 8: bad" in said
    assert [(row["group"], row["line"], row["kept"], row["kept_line"], row["text"]) for row in read(out)] == [
        ("1", "2", "yes", "2", "a good film"),
        ("2", "3", "yes", "3", "bad"),
        ("2", "5", "no", "3", "bad"),
        ("1", "7", "no", "2", "a good film"),
        ("2", "8", "no", "3", "bad"),
    ]
    for form in ("npy", "npz", "parquet"):
        osbert.embed(encoder, table, out=tmp_path / f"x.{form}")
        found = osbert.find_duplicates(tmp_path / f"x.{form}", above=0.9999, out=tmp_path / "found.jsonl")
        assert found.kept_lines.tolist() == [2, 3, 4, 6]
        lines = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
        assert [line["line"] for line in lines] == [2, 3, 5, 7, 8]


def test_topics_of_texts(encoder: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "topics"
    assert terminal_run("topics", table, "--model", encoder, "--out", out, "--topics", "3") == 0
    assert "3 topics, as given" in capsys.readouterr().out
    rows, topics = read(out / "rows.csv"), read(out / "topics.csv")
    assert [row["line"] for row in rows] == [str(place) for place in range(2, 9)]
    assert [row["text"] for row in rows] == TEXTS
    assert rows[1]["topic"] == rows[3]["topic"] == rows[6]["topic"]
    sizes = [sum(row["topic"] == one["topic"] for row in rows) for one in topics]
    assert [int(one["size"]) for one in topics] == sizes == sorted(sizes, reverse=True)
    page = (out / "report.html").read_text()
    assert "bad" in page and not re.search(r"https?://", page)
    chosen = osbert.find_topics(table, model=encoder, out=tmp_path / "chosen")
    assert len(chosen.topics) == max(chosen.silhouettes, key=lambda one: (chosen.silhouettes[one], -one))
    with refusal("output-exists", out):
        osbert.find_topics(table, model=encoder, out=out)


def test_words_of_topics_are_weighed_by_class() -> None:
    rows = [(0, "the cat sat on the mat"), (0, "the cat 42"), (1, "the dog ran on"), (1, "the dog sat")]
    first, second = topic_words(rows, 2)
    assert [word for word, _ in first][:2] == ["cat", "mat"] and [word for word, _ in second][:2] == ["dog", "ran"]
    # "cat" is 2 of the 8 words of its topic and of all 15; of "sat", in both, 8/15 would be in the first by chance.
    assert dict(first)["cat"] == pytest.approx(2 / 8 * np.log(1 + 15 / 2 / 2))
    assert dict(first)["the"] < 0.2 * dict(first)["cat"]
    assert "sat" not in dict(first) and dict(second)["sat"] == pytest.approx(
        1 / 7 * np.log(1 + 15 / 2 / 2) * (1 / 2 - 7 / 15) / (8 / 15)
    )


def test_what_cannot_be_compared_is_said(encoder: Path, table: Path, tmp_path: Path) -> None:
    find, cluster = osbert.find_duplicates, osbert.find_topics
    with refusal("missing-option", "--model"):
        find(table)
    with refusal("no-data"):
        find([], model=encoder)
    (tmp_path / "empty.txt").write_text("\n")
    with refusal("no-data", "empty.txt"):
        find(tmp_path / "empty.txt", model=encoder)
    with refusal("too-little-data"):
        find(["one text"], model=encoder)
    with refusal("invalid-value", "--above", "1.5"):
        find(table, model=encoder, above=1.5)
    with refusal("output-is-input", table):
        find(table, model=encoder, out=table)
    with refusal("too-little-data", "7", "8"):
        cluster(table, model=encoder, out=tmp_path / "t", topics=8)
    with refusal("too-little-data", "--topics"):
        cluster(TEXTS[:3], model=encoder, out=tmp_path / "t")
    with refusal("invalid-value", "--topics"):
        cluster(table, model=encoder, out=tmp_path / "t", topics=1)
    osbert.embed(encoder, table, out=tmp_path / "stacked.npz", layers="0,1")
    with refusal("wrong-format", "0,1"):
        find(tmp_path / "stacked.npz")
    osbert.embed(encoder, table, out=tmp_path / "x.npy")
    vectors = np.load(tmp_path / "x.npy")
    vectors[4, 2] = np.nan
    np.save(tmp_path / "x.npy", vectors)
    for ask in (lambda: find(tmp_path / "x.npy"), lambda: osbert.search(tmp_path / "x.npy", vectors[:1])):
        with refusal("not-finite", "4"):
            ask()
    assert not (tmp_path / "t").exists()
