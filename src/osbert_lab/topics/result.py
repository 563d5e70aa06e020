"""The topics of a file: their sizes, words and texts, as results, tables and lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from osbert.terminal import format_count, in_columns
from osbert_lab.topics.clusters import CLEAR


@dataclass(frozen=True, kw_only=True)
class TopicText:
    """A text of a topic: its line, the cosine with the topic's centre, and what it says, or both texts of a pair."""

    line: int
    cosine: float
    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic: its number from 1, how many texts it has, its words with their weights, and its most typical texts."""

    number: int
    size: int
    words: Sequence[tuple[str, float]]
    texts: Sequence[TopicText]

    @property
    def name(self) -> str:
        """Return its number and first words."""
        return f"{self.number} {', '.join(word for word, _ in self.words[:3])}".strip()


@dataclass(frozen=True, kw_only=True)
class TopicTally:
    """The topics of `rows` texts, the largest first, in a folder. `silhouettes`: by number of topics.

    `wanted`: the number of topics that was requested, 0 for none; if texts are alike, there may be fewer topics.
    """

    reported: ClassVar[tuple[str, ...]] = ("folder", "rows", "topics", "silhouettes")

    folder: Path
    rows: int
    topics: Sequence[Topic]
    silhouettes: Mapping[int, float]
    wanted: int = 0

    def lines(self) -> Iterator[str]:
        """Yield a table of the topics, and where the page is."""
        rows = [
            (
                str(topic.number),
                f"{topic.size:,}",
                f"{topic.size / self.rows:.1%}",
                ", ".join(word for word, _ in topic.words),
            )
            for topic in self.topics
        ]
        yield from in_columns([("topic", "texts", "part", "words"), *rows])
        yield f"{self.explain_count()} --topics N takes another number."
        yield f"{format_count(self.rows, 'text')} -> {self.folder} (report.html, rows.csv, topics.csv)"

    def explain_count(self) -> str:
        """Return in words why there are as many topics."""
        count = len(self.topics)
        if not self.silhouettes:
            fewer = f": the vectors do not fall into {self.wanted:,}." if count < self.wanted else ", as given."
            return f"{format_count(count, 'topic')}{fewer}"
        if count == 1:
            return "1 topic: the vectors of all texts are alike."
        best = max(self.silhouettes, key=lambda number: self.silhouettes[number])
        tried = f"{len(self.silhouettes)} numbers from {min(self.silhouettes)} to {max(self.silhouettes)}"
        if self.silhouettes[best] >= CLEAR:
            return (
                f"{format_count(count, 'topic')}: of {tried} the one with the largest silhouette on a sample, "
                f"{self.silhouettes[best]:.3f} (clusters that lie apart)."
            )
        return (
            f"{format_count(count, 'topic')}, by the number of texts: their clusters run into each "
            f"other. Of {tried} the "
            f"largest silhouette on a sample is only {self.silhouettes[best]:.3f}, so any number cuts the texts up."
        )
