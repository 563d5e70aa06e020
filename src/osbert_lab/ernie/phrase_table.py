"""A table of a corpus's own phrases: runs of words that are frequent, cohesive, and free to stand beside others.

A run of words is a phrase if it is frequent; if its words stand together far more often than by chance, by the
pointwise mutual information of the parts into which it can be cut (Church and Hanks 1990); and if many different words
stand before and behind it, by the entropy of its neighbours: "Republic of" is cohesive, but followed by few words. No
tagger or list is needed, and in Chinese characters take the place of words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from osbert_lab.ernie.run_counts import KeyCounts, Level, SpilledText, count_level, entropies

IDEOGRAPHS = r"\u3400-\u4dbf\u4e00-\u9fff"
IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\W{IDEOGRAPHS}]+(?:['’-][^\W{IDEOGRAPHS}]+)*")
"""A word: a Chinese character, or a run of letters and digits, with hyphens and apostrophes inside."""
LONGEST = 5
"""Most words of a phrase."""
COUNT, COHESION, FREEDOM = 10, 3.0, 1.0
"""Least number of occurrences, mutual information in nats, and entropy in nats of the neighbours on either side."""

MOST = 2**24
"""Most different words, or runs of words of one length, that are counted at a time: about 1 GB of memory."""


@dataclass(frozen=True, kw_only=True)
class PhraseRow:
    """A phrase of a text, how often it occurs, and what tells that it is one.

    `cohesion`: the least pointwise mutual information of two parts of it, in nats. `before`, `behind`: the entropy of
    the words that stand there, in nats; the edge of a run of words counts as one word.
    """

    phrase: str
    count: int
    cohesion: float
    before: float
    behind: float


def find_phrases(
    sentences: Iterable[str],
    *,
    longest: int = LONGEST,
    count: int = COUNT,
    cohesion: float = COHESION,
    freedom: float = FREEDOM,
    limit: int = MOST,
    remark: Callable[[str], None] = lambda text: None,
) -> list[PhraseRow]:
    """Return the phrases of sentences, the most frequent first, those of one number in alphabetical order.

    Words are compared as they are written. Punctuation ends a run of words. The text is read once and kept in a
    temporary folder, about 24 bytes a word. Of more than `limit` different words, runs of one length, or neighbours the
    rarest are forgotten, and `remark` gets a line that says so. Raises OSError if the disk is full.

    >>> text = ["We saw New York, and he left New York again.", "New York is big. I like it.", "In New York she ran."]
    >>> [(row.phrase, row.count) for row in find_phrases(text * 3, count=9, freedom=0.5, cohesion=1)]
    [('New York', 12)]
    """
    with TemporaryDirectory(prefix="osbert-phrases-") as folder:
        runs = itertools.chain.from_iterable(map(split_runs, sentences))
        text = SpilledText(Path(folder) / "words", runs, limit=limit)
        rows, forgotten = _select(text, longest=longest, count=count, cohesion=cohesion, freedom=freedom)
        if text.forgotten or forgotten:
            remark(
                f"The text has more than {limit:,} different words, or runs of words of one length. The rarest were "
                "forgotten while counting: phrases may be missing, and counts may be too low."
            )
    return rows


def split_runs(sentence: str) -> Iterator[list[str]]:
    """Yield the runs of words of a sentence, between signs.

    >>> [*split_runs("In New York, she ran.")]
    [['In', 'New', 'York'], ['she', 'ran']]
    """
    run: list[str] = []
    end = 0
    for match in WORD.finditer(sentence):
        if run and sentence[end : match.start()].strip():  # a sign between two words
            yield run
            run = []
        run.append(match[0])
        end = match.end()
    if run:
        yield run


def table_lines(rows: Iterable[PhraseRow]) -> Iterator[str]:
    """Yield the lines of a table of phrases, separated by tabs, the headings first."""
    yield "phrase\tcount\tcohesion\tentropy before\tentropy behind"
    for row in rows:
        yield f"{row.phrase}\t{row.count}\t{row.cohesion:.2f}\t{row.before:.2f}\t{row.behind:.2f}"


def _select(
    text: SpilledText, *, longest: int, count: int, cohesion: float, freedom: float
) -> tuple[list[PhraseRow], bool]:
    """Return the phrases of a text, and whether some runs or neighbours were forgotten."""
    counts = KeyCounts(limit=text.limit)
    levels = [count_level(text, [], counts, count=count)]
    forgotten = counts.forgotten
    rows: list[PhraseRow] = []
    while len(levels) < longest and len(levels[-1].counts):
        counts = KeyCounts(limit=text.limit)
        levels.append(level := count_level(text, levels, counts, count=count))
        scores = _cohesion(levels, text.words)
        chosen = np.flatnonzero(scores >= cohesion)
        (before, fewer), (behind, fewer_behind) = (
            entropies(text, level, chosen, offset=offset) for offset in (-1, len(levels))
        )
        forgotten |= counts.forgotten or fewer or fewer_behind
        for index in np.flatnonzero(np.minimum(before, behind) >= freedom).tolist():
            number = chosen[index]
            begin = level.examples[number]
            row = PhraseRow(
                phrase=_join([text.names[word] for word in text.ids[begin : begin + len(levels)].tolist()]),
                count=int(level.counts[number]),
                cohesion=float(scores[number]),
                before=float(before[index]),
                behind=float(behind[index]),
            )
            rows.append(row)
    return sorted(rows, key=lambda row: (-row.count, row.phrase)), forgotten


def _cohesion(levels: Sequence[Level], total: int) -> NDArray[np.float64]:
    """Return the least mutual information of two parts of each run (K,) of the last level, in nats.

    log(c(ab) n / (c(a) c(b))) for a run ab of n words in all. -inf for a run of which a part was forgotten.
    """
    *shorter, level = levels
    least = np.full(len(level.counts), np.inf)
    for cut, (left, right) in enumerate(zip(shorter, reversed(shorter), strict=True), start=1):
        numbers = left.numbers[level.examples], right.numbers[level.examples + cut]
        known = (numbers[0] >= 0) & (numbers[1] >= 0)
        ratio = (
            np.log(level.counts) + np.log(total) - np.log(left.counts[numbers[0]]) - np.log(right.counts[numbers[1]])
        )
        least = np.minimum(least, np.where(known, ratio, -np.inf))
    return least


def _join(texts: Sequence[str]) -> str:
    """Return words as a text: with spaces, but none between Chinese characters.

    >>> _join(["New", "York"]), _join(["北", "京"])
    ('New York', '北京')
    """
    joined = texts[0]
    for before, text in itertools.pairwise(texts):
        joined += text if IDEOGRAPH.match(before) and IDEOGRAPH.match(text) else f" {text}"
    return joined
