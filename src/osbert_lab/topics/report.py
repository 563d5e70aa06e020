"""The page of topics: their sizes, words and typical texts."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from osbert.reports.bars import BarRow, bar_plot
from osbert.reports.examples import SCRIPT, STYLE, search_box
from osbert.reports.page import Section, paragraph, table, write_report
from osbert.reports.plot import Series, line_plot
from osbert_lab.topics.result import Topic, TopicTally

DRAWN = 30
"""Most topics in the picture of sizes."""
LONGEST = 600
"""Most characters shown of a text."""


def topics_report(path: Path, found: TopicTally, *, name: str) -> Path:
    """Write the page; `name`: of the texts. Returns its path."""
    sections = [
        Section(heading="Sizes", parts=list(_pictures(found))),
        Section(heading="Words", parts=[table(_words(found), head=("topic", "texts", "part", "words"))]),
        Section(heading="Topics", parts=list(_cards(found)), style=STYLE, script=SCRIPT),
        Section(
            heading="How they were made",
            parts=[
                paragraph(
                    "Topics are clusters of the texts' vectors by k-means; every text is in the topic whose centre is "
                    "nearest, also where it fits none. Words are ranked by TF-IDF: those that more texts of a topic "
                    "have than of the others, without function words. The texts of a topic are those nearest to its "
                    "centre, with the cosine."
                )
            ],
        ),
    ]
    return write_report(path, f"Topics of {found.rows:,} texts: {name}", sections, lead=found.chosen())


def _pictures(found: TopicTally) -> Iterator[str]:
    rows = [BarRow(name=one.name, values=[one.size / found.rows]) for one in found.topics[:DRAWN]]
    yield bar_plot(rows, [""], title="Part of the texts")
    if found.silhouettes:
        points = [(float(count), value) for count, value in found.silhouettes.items()]
        curve = Series(name="silhouette", points=points, look="dots")
        yield line_plot([curve], title="Silhouette by number of topics", across="topics")


def _words(found: TopicTally) -> Iterator[tuple[object, ...]]:
    for one in found.topics:
        words = ", ".join(f"{word} {weight:.3f}" for word, weight in one.words)
        yield one.number, f"{one.size:,}", f"{one.size / found.rows:.1%}", words or "none of its own"


def _cards(found: TopicTally) -> Iterator[str]:
    yield search_box("Search the topics")
    for one in found.topics:
        yield f'<article class="card">{"".join(_card(one, found.rows))}</article>'


def _card(topic: Topic, rows: int) -> Iterator[str]:
    yield f'<p><b>{escape(topic.name)}</b> <span class="soft">{topic.size:,} texts, {topic.size / rows:.1%}</span></p>'
    for one in topic.texts:
        shown = " | ".join(one.texts)
        cut = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
        place = f'<span class="soft">line {one.line:,}, {one.cosine:.2f}</span>'
        yield f'<p class="text" dir="auto">{escape(cut)} {place}</p>'
