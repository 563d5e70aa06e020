"""osbert topics: from texts to tables and a page, and what it refuses."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import osbert
from osbert_lab.topics.words import topic_words
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
    alike = osbert.find_topics(["bad"] * 4, model=encoder, out=tmp_path / "alike", topics=3)
    assert len(alike.topics) == 1 and "3" in alike.chosen()
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


def test_what_cannot_be_clustered_is_said(encoder: Path, table: Path, tmp_path: Path) -> None:
    cluster = osbert.find_topics
    with refusal("too-little-data", "7", "8"):
        cluster(table, model=encoder, out=tmp_path / "t", topics=8)
    with refusal("too-little-data", "--topics"):
        cluster(TEXTS[:3], model=encoder, out=tmp_path / "t")
    with refusal("invalid-value", "--topics"):
        cluster(table, model=encoder, out=tmp_path / "t", topics=1)
    with refusal("invalid-value", "--seed"):
        cluster(table, model=encoder, out=tmp_path / "t", topics=2, seed=-1)
