"""The page of topics: their sizes, words and typical texts."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from osbert.reports.charts import BarRow, bar_plot
from osbert.reports.examples import SCRIPT, STYLE, search_box
from osbert.reports.page import Section, paragraph, table, write_report
from osbert.reports.plot import Series, line_plot
from osbert_lab.topics.result import Topic, TopicTally

DRAWN = 30
"""Most topics in the picture of sizes."""
LONGEST = 600
"""Most characters shown of a text."""


def topics_report(path: Path, tally: TopicTally, *, name: str) -> Path:
    """Write the page; `name`: of the texts. Returns its path."""
    sections = [
        Section(heading="Sizes", parts=list(_pictures(tally))),
        Section(heading="Words", parts=[table(_words(tally), head=("topic", "texts", "part", "words"))]),
        Section(heading="Topics", parts=list(_cards(tally)), style=STYLE, script=SCRIPT),
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
    return write_report(path, f"Topics of {tally.rows:,} texts: {name}", sections, lead=tally.explain_count())


def _pictures(tally: TopicTally) -> Iterator[str]:
    rows = [BarRow(name=topic.name, values=[topic.size / tally.rows]) for topic in tally.topics[:DRAWN]]
    yield bar_plot(rows, [""], title="Part of the texts")
    if tally.silhouettes:
        points = [(float(count), value) for count, value in tally.silhouettes.items()]
        curve = Series(name="silhouette", points=points, look="dots")
        yield line_plot([curve], title="Silhouette by number of topics", across="topics")


def _words(tally: TopicTally) -> Iterator[tuple[object, ...]]:
    for topic in tally.topics:
        words = ", ".join(f"{word} {weight:.3f}" for word, weight in topic.words)
        yield topic.number, f"{topic.size:,}", f"{topic.size / tally.rows:.1%}", words or "none of its own"


def _cards(tally: TopicTally) -> Iterator[str]:
    yield search_box("Search the topics")
    for topic in tally.topics:
        yield f'<article class="card">{"".join(_card(topic, tally.rows))}</article>'


def _card(topic: Topic, rows: int) -> Iterator[str]:
    yield f'<p><b>{escape(topic.name)}</b> <span class="soft">{topic.size:,} texts, {topic.size / rows:.1%}</span></p>'
    for text in topic.texts:
        full_text = " | ".join(text.texts)
        cut = full_text if len(full_text) <= LONGEST else f"{full_text[: LONGEST - 1]}…"
        location = f'<span class="soft">line {text.line:,}, {text.cosine:.2f}</span>'
        yield f'<p class="text" dir="auto">{escape(cut)} {location}</p>'
