"""osbert topics: from texts to tables and a page, and what it refuses."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import osbert
from osbert_lab.topics.clusters import CLEAR, choose_count, score_counts
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
    assert len(chosen.topics) == choose_count(chosen.silhouettes, len(TEXTS))
    alike = osbert.find_topics(["bad"] * 4, model=encoder, out=tmp_path / "alike", topics=3)
    assert len(alike.topics) == 1 and "3" in alike.explain_count()
    with refusal("output-exists", out):
        osbert.find_topics(table, model=encoder, out=out)


def test_words_of_topics_are_weighed_by_texts() -> None:
    rows = [(0, "cat sat cat"), (0, "cat 42"), (1, "dog ran"), (1, "dog sat"), (1, "dog x")]
    first, second = topic_words(rows, 2)
    assert [word for word, _ in first] == ["cat", "sat"] and [word for word, _ in second] == ["ran", "dog"]
    # Both texts of the first topic have "cat", and 2 of all 5 texts.
    assert dict(first)["cat"] == pytest.approx(2 / 2 * np.log(5 / 2))
    # Of the two texts with "sat" one is in the first topic, where 2/5 would be by chance; 3/5 in the second.
    assert dict(first)["sat"] == pytest.approx(1 / 2 * np.log(5 / 2) * (1 / 2 - 2 / 5) / (3 / 5))
    assert dict(second)["ran"] == pytest.approx(1 / 3 * np.log(5 / 1) * 1)


@pytest.mark.parametrize(
    ("first", "second", "function"),
    [
        ("the flow of the gas at the wall was studied", "we learn our agent", {"the", "of", "at", "was"}),
        ("der Fluss an der Wand wurde mit der Sonde im Kanal untersucht", "Agenten lernen", {"der", "an", "mit", "im"}),
        ("le flux de la paroi est dans le canal avec la sonde", "agents savants", {"le", "la", "de", "est", "dans"}),
    ],
)
def test_function_words_name_no_topic(first: str, second: str, function: set[str]) -> None:
    rows = [(0, first)] * 3 + [(1, second)] * 9
    words = {word for words in topic_words(rows, 2) for word, _ in words}
    assert words and not words & (function | {"we", "our", "wurde"})
    [[(word, _)], _] = topic_words([(0, "the"), (1, "xx yy " * 10)], 2)
    assert word == "the"  # one word of 21 is no text in English


def test_topics_of_texts_without_clear_clusters_follow_their_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(900, 40)).astype(np.float32)
    np.save(tmp_path / "x.npy", vectors)
    texts = "".join(f"text {number}\n" for number in range(900))
    (tmp_path / "x.txt").write_text(texts)
    assert max(score_counts(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).values()) < CLEAR
    assert [choose_count({2: 0.1, 3: 0.05}, rows) for rows in (4, 100, 3000, 10**6)] == [2, 3, 18, 30]
    assert choose_count({2: 0.3, 5: 0.4, 30: 0.4}, 10**6) == 5


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
