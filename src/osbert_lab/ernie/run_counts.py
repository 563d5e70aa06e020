"""Counts of the runs of words of a text in bounded memory: the text lies in files, and is counted in blocks.

As in word2phrase and lossy counting (Manku and Motwani 2002), the rarest runs are forgotten whenever there are more
than a limit. If that never happens, the counts are exact.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

EDGE = 0
"""The number between two runs of words that punctuation separates."""
BUFFER = 2**16
"""Words that are written together."""

Numbers = NDArray[np.integer]


@dataclass(kw_only=True, eq=False)
class KeyCounts:
    """How often each of some keys occurs. `forgotten`: whether there were more than `limit` at a time.

    >>> counts = KeyCounts(limit=3)
    >>> counts.add(np.array([7, 5, 7, 7]))
    >>> counts.add(np.array([5, 1]))
    >>> counts.keys.tolist(), counts.counts.tolist(), counts.forgotten
    ([1, 5, 7], [1, 2, 3], False)
    >>> counts.add(np.array([9]))
    >>> counts.keys.tolist(), counts.forgotten
    ([7], True)
    """

    limit: int
    keys: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    forgotten: bool = False

    def add(self, keys: Numbers) -> None:
        """Count keys (n,). If there are too many different ones, keep the most frequent, at most half of the limit."""
        unique, numbers = np.unique(keys.astype(np.int64), return_counts=True)
        merged = np.concatenate([self.keys, unique])
        order = np.argsort(merged, kind="stable")  # linear: both parts are sorted
        merged = merged[order]
        firsts = np.flatnonzero(np.diff(merged, prepend=merged[:1] - 1))
        counts = np.concatenate([self.counts, numbers])[order]
        self.keys = merged[firsts]
        self.counts = np.add.reduceat(counts, firsts) if len(firsts) else counts
        if len(self.keys) > self.limit:
            self.forgotten = True
            rank = len(self.keys) - max(1, self.limit // 2)
            frequent = self.counts > np.partition(self.counts, rank - 1)[rank - 1]
            self.keys, self.counts = self.keys[frequent], self.counts[frequent]


class SpilledText:
    """A text as numbers of its words in a file, from 1 on in the order of their occurrence, EDGE before each run.

    `names`: the words by their numbers, at most `limit`. If there are more, the rarest are forgotten (`forgotten`), and
    get another number when they occur again.
    """

    def __init__(self, path: Path, runs: Iterable[Iterable[str]], *, limit: int) -> None:
        """Write the runs of words into the file `path`. Raises OSError if the disk is full."""
        self.limit = limit
        self.forgotten = False
        self.path = path
        self.words = 0
        self.most = 0
        vocabulary: dict[str, int] = {}
        with path.open("wb") as file:
            buffer = array("i")
            for run in runs:
                buffer.append(EDGE)
                for word in run:
                    if (number := vocabulary.get(word)) is None:
                        self.most += 1
                        number = vocabulary[word] = self.most
                    buffer.append(number)
                if len(buffer) >= BUFFER or len(vocabulary) > limit:
                    buffer.tofile(file)
                    buffer = array("i")
                if len(vocabulary) > limit:
                    file.flush()
                    self._forget(vocabulary)
            buffer.append(EDGE)
            buffer.tofile(file)
        self.ids: NDArray[np.int32] = self._open()
        self.words = sum(int(np.count_nonzero(self.ids[part])) for part in self.blocks())
        self.names = {number: word for word, number in vocabulary.items()}

    def __len__(self) -> int:
        """Return the number of words and edges."""
        return len(self.ids)

    def blocks(self) -> Iterator[slice]:
        """Yield the parts of the text that are counted together."""
        size = max(1, self.limit // 4)
        yield from (slice(begin, min(begin + size, len(self))) for begin in range(0, len(self), size))

    def _open(self) -> NDArray[np.int32]:
        return np.memmap(self.path, np.intc, mode="r")

    def _forget(self, vocabulary: dict[str, int]) -> None:
        """Remove the rarest words so far from the vocabulary, at least half."""
        self.forgotten = True
        self.ids = self._open()
        counts = KeyCounts(limit=self.limit)
        for part in self.blocks():
            counts.add(self.ids[part])
        most_frequent = counts.keys[np.argsort(-counts.counts, kind="stable")[: self.limit // 2]]
        numbers = {*most_frequent.tolist()}
        for word in [word for word, number in vocabulary.items() if number not in numbers]:
            del vocabulary[word]


@dataclass(frozen=True, kw_only=True, eq=False)
class Level:
    """The K frequent runs of so many words of a text of n words and edges.

    `numbers` (n,), in a file: the number of the run that begins at each position, -1 for none. `counts` and `examples`
    (K,): the occurrences of each run, and the position of one of them.
    """

    numbers: NDArray[np.int32]
    counts: NDArray[np.int64]
    examples: NDArray[np.int64]


def count_level(text: SpilledText, levels: Sequence[Level], counts: KeyCounts, *, count: int) -> Level:
    """Return the runs with at least `count` occurrences that are one word longer than those of the last of `levels`."""
    for part in text.blocks():
        keys = _keys(text, levels, part)
        counts.add(keys[keys >= 0])
    frequent = counts.counts >= count
    keys, numbers = counts.keys[frequent], counts.counts[frequent]
    if not levels:  # a word that was forgotten has no name
        named = np.isin(keys, np.fromiter(text.names, np.int64, len(text.names)))
        keys, numbers = keys[named], numbers[named]
    path = text.path.with_name(f"runs-{len(levels) + 1}")
    run_numbers = np.memmap(path, np.int32, mode="w+", shape=(len(text),))
    examples = np.zeros(len(keys), np.int64)
    for part in text.blocks():
        run_keys = _keys(text, levels, part)
        positions = np.minimum(np.searchsorted(keys, run_keys), max(0, len(keys) - 1))
        known = keys[positions] == run_keys if len(keys) else np.zeros(len(run_keys), np.bool_)
        run_numbers[part] = np.where(known, positions, -1)
        examples[positions[known]] = part.start + np.flatnonzero(known)
    return Level(numbers=run_numbers, counts=numbers, examples=examples)


def entropies(text: SpilledText, level: Level, chosen: Numbers, *, offset: int) -> tuple[NDArray[np.float64], bool]:
    """Return the entropy in nats of the neighbours of the chosen runs (k,), and whether some were forgotten.

    `offset`: the position of a neighbour, counted from the first word of the run. Each neighbour that was forgotten
    counts as a word of its own.
    """
    selected = np.full(len(level.counts) + 1, -1, np.int64)  # the last one is that of no run
    selected[chosen] = np.arange(len(chosen))
    counts, width = KeyCounts(limit=text.limit), text.most + 1
    totals = np.zeros(len(chosen), np.int64)
    for part in text.blocks():
        owners = selected[level.numbers[part]]
        positions = np.flatnonzero(owners >= 0)
        totals += np.bincount(owners[positions], minlength=len(chosen))
        # Before the first word of the text, as behind its last one, there is an edge.
        neighbours = text.ids[np.minimum(part.start + positions + offset, len(text) - 1)]
        counts.add(owners[positions] * width + neighbours)
    owners = counts.keys // width
    probabilities = counts.counts / totals[owners]
    sums = np.bincount(owners, weights=-probabilities * np.log(probabilities), minlength=len(chosen))
    forgotten = totals - np.bincount(owners, weights=counts.counts, minlength=len(chosen))
    return sums + forgotten / np.maximum(totals, 1) * np.log(np.maximum(totals, 1)), counts.forgotten


def _keys(text: SpilledText, levels: Sequence[Level], part: slice) -> NDArray[np.int64]:
    """Return the key of the run that begins at each position of a part of the text, -1 where none can be frequent.

    A run can only be frequent if it is so without its last word, and its last word is (Agrawal and Srikant 1994).
    """
    if not levels:
        ids = text.ids[part].astype(np.int64)
        return np.where(ids == EDGE, -1, ids)
    first = levels[-1].numbers[part].astype(np.int64)
    last = np.full(len(first), -1, np.int64)
    behind = levels[0].numbers[part.start + len(levels) : part.stop + len(levels)]
    last[: len(behind)] = behind
    return np.where((first >= 0) & (last >= 0), first * len(levels[0].counts) + last, -1)
