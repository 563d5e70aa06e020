"""A table of a corpus's own phrases: runs of words that are frequent, cohesive, and free to stand beside others.

A run of words is a phrase if it is frequent; if its words stand together far more often than by chance, by the
pointwise mutual information of the parts into which it can be cut (Church and Hanks 1990); and if many different words
stand before and behind it, by the entropy of its neighbours: "Republic of" is cohesive, but followed by few words. No
tagger or list is needed, and in Chinese characters take the place of words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IDEOGRAPHS = r"\u3400-\u4dbf\u4e00-\u9fff"
IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\W{IDEOGRAPHS}]+(?:['’-][^\W{IDEOGRAPHS}]+)*")
"""A word: a Chinese character, or a run of letters and digits, with hyphens and apostrophes inside."""
LONGEST = 5
"""Most words of a phrase."""
COUNT, COHESION, FREEDOM = 10, 3.0, 1.0
"""Least number of occurrences, mutual information in nats, and entropy in nats of the neighbours on either side."""

Numbers = NDArray[np.int64]


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
) -> list[PhraseRow]:
    """Return the phrases of sentences, the most frequent first, those of one number in alphabetical order.

    Words are compared as they are written. Punctuation ends a run of words.

    >>> text = ["We saw New York, and he left New York again.", "New York is big. I like it.", "In New York she ran."]
    >>> [(row.phrase, row.count) for row in find_phrases(text * 3, count=9, freedom=0.5, cohesion=1)]
    [('New York', 12)]
    """
    vocabulary: dict[str, int] = {}
    runs: list[int] = []
    for sentence in sentences:
        end = 0
        for match in WORD.finditer(sentence):
            if sentence[end : match.start()].strip() or not end:  # a sign between two words
                runs.append(0)
            runs.append(vocabulary.setdefault(match[0], len(vocabulary) + 1))
            end = match.end()
    words = [""] + [*vocabulary]
    ids = np.array([*runs, 0], np.int64)  # 0 stands between runs
    return _select(ids, words, longest=longest, count=count, cohesion=cohesion, freedom=freedom)


def table_lines(rows: Iterable[PhraseRow]) -> Iterator[str]:
    """Yield the lines of a table of phrases, separated by tabs, the headings first."""
    yield "phrase\tcount\tcohesion\tentropy before\tentropy behind"
    for row in rows:
        yield f"{row.phrase}\t{row.count}\t{row.cohesion:.2f}\t{row.before:.2f}\t{row.behind:.2f}"


def _select(
    ids: Numbers, words: Sequence[str], *, longest: int, count: int, cohesion: float, freedom: float
) -> list[PhraseRow]:
    """Return the phrases of a text of words `ids` (n,), 0 at each edge of a run."""
    total = int((ids > 0).sum())
    # For each size k: at each place the number of the frequent run of k words that begins there, -1 for none.
    run_numbers: list[Numbers] = [np.where(ids > 0, ids, -1)]
    counts: list[Numbers] = [np.bincount(ids, minlength=len(words))]
    rows: list[PhraseRow] = []
    for size in range(2, longest + 1):
        # A run can only be frequent if its first and its last words are (Agrawal and Srikant 1994).
        first, last = run_numbers[-1][:-1], ids[size - 1 :]
        first = first[: len(last)]
        frequent = (first >= 0) & (last > 0)
        keys = np.where(frequent, first * len(words) + last, -1)
        unique, inverse, number = np.unique(keys, return_inverse=True, return_counts=True)
        is_frequent = (number >= count) & (unique >= 0)
        names = np.where(is_frequent, np.cumsum(is_frequent) - 1, -1)
        number_at = names[inverse]
        if not is_frequent.any():
            break
        run_numbers.append(number_at)
        counts.append(number[is_frequent])
        starts = np.flatnonzero(number_at >= 0)
        scores = _cohesion(starts, run_numbers, counts, total)
        before, behind = (
            _entropies(number_at[starts], neighbours, len(counts[-1]))
            for neighbours in (ids[starts - 1], ids[np.minimum(starts + size, len(ids) - 1)])
        )
        examples = np.zeros(len(counts[-1]), np.int64)
        examples[number_at[starts]] = starts  # any occurrence
        for index in np.flatnonzero((scores >= cohesion) & (np.minimum(before, behind) >= freedom)).tolist():
            texts = [words[word] for word in ids[examples[index] : examples[index] + size]]
            rows.append(
                PhraseRow(
                    phrase=_join(texts),
                    count=int(counts[-1][index]),
                    cohesion=float(scores[index]),
                    before=float(before[index]),
                    behind=float(behind[index]),
                )
            )
    return sorted(rows, key=lambda row: (-row.count, row.phrase))


def _cohesion(
    starts: Numbers, run_numbers: Sequence[Numbers], counts: Sequence[Numbers], total: int
) -> NDArray[np.float64]:
    """Return the least mutual information of two parts of each run (K,), whose occurrences begin at `starts`.

    log(c(ab) n / (c(a) c(b))) for a run ab of n words in all.
    """
    size = len(run_numbers)
    numbers = run_numbers[-1][starts]
    least = np.full(len(counts[-1]), np.inf)
    for cut in range(1, size):
        left = counts[cut - 1][run_numbers[cut - 1][starts]]
        right = counts[size - cut - 1][run_numbers[size - cut - 1][starts + cut]]
        least[numbers] = np.minimum(
            least[numbers], np.log(counts[-1][numbers]) + np.log(total) - np.log(left) - np.log(right)
        )
    return least


def _entropies(owners: Numbers, neighbours: Numbers, count: int) -> NDArray[np.float64]:
    """Return the entropy in nats of the neighbours of each of `count` runs (K,); `owners` (n,): whose they are."""
    pairs, numbers = np.unique(owners * (int(neighbours.max(initial=0)) + 1) + neighbours, return_counts=True)
    runs = pairs // (int(neighbours.max(initial=0)) + 1)
    totals = np.bincount(runs, weights=numbers, minlength=count)
    probabilities = numbers / totals[runs]
    return np.asarray(np.bincount(runs, weights=-probabilities * np.log(probabilities), minlength=count), np.float64)


def _join(texts: Sequence[str]) -> str:
    """Return words as a text: with spaces, but none between Chinese characters.

    >>> _join(["New", "York"]), _join(["北", "京"])
    ('New York', '北京')
    """
    joined = texts[0]
    for before, text in itertools.pairwise(texts):
        joined += text if IDEOGRAPH.match(before) and IDEOGRAPH.match(text) else f" {text}"
    return joined
