"""Packs pieces into sequences: the special tokens, the fit to the longest length, and spans of consecutive sentences.

A sequence is [CLS] a [SEP] or [CLS] a [SEP] b [SEP]; a has segment 0 with its specials, b has segment 1 (section 3.1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from osbert.data.example import Booleans, Example, Integers, Target
from osbert.text.document import Document
from osbert.text.tokenizer import Tokenizer

SINGLE_SPECIALS = 2
PAIR_SPECIALS = 3


class Pieces(Protocol):
    """Anything with n pieces and their word starts: a Document, or a slice of one."""

    @property
    def ids(self) -> Integers:
        """Return the pieces (n,), without specials."""
        ...

    @property
    def words(self) -> Booleans:
        """Return where words start (n,)."""
        ...


class Run(NamedTuple):
    """A run of consecutive pieces of a document: `ids` (n,) and `words` (n,)."""

    ids: Integers
    words: Booleans


@dataclass(frozen=True, kw_only=True)
class Packer:
    """Lays pieces out as sequences of at most `length` tokens, specials included."""

    tokenizer: Tokenizer
    length: int = 128
    """Most tokens in a sequence, [CLS] and [SEP] included."""
    short: float = 0.1
    """Share of pretraining sequences that aim at a random shorter length."""

    def __post_init__(self) -> None:
        """Refuse what no sequence can be made with."""
        if self.length < PAIR_SPECIALS + 2:
            raise ValueError(f"length must be at least {PAIR_SPECIALS + 2}, not {self.length}")
        if not 0 <= self.short <= 1:
            raise ValueError(f"short is a share between 0 and 1, not {self.short}")

    def single(self, ids: Integers, words: Booleans, *, record: int = 0) -> Example:
        """Return [CLS] ids [SEP]; what does not fit is cut from the end and counted in `truncated`."""
        size = min(len(ids), self.length - SINGLE_SPECIALS)
        return self._sequence((Run(ids[:size], words[:size]),), record=record, truncated=len(ids) - size)

    def pair(self, first: Pieces, second: Pieces, *, record: int = 0) -> Example:
        """Return [CLS] first [SEP] second [SEP]; the longer text is cut from its end, as often as it is the longer."""
        left, right = shares(len(first.ids), len(second.ids), self.length - PAIR_SPECIALS)
        runs = (Run(first.ids[:left], first.words[:left]), Run(second.ids[:right], second.words[:right]))
        return self._sequence(runs, record=record, truncated=len(first.ids) + len(second.ids) - left - right)

    def random_pair(self, first: Run, second: Run, rng: np.random.Generator, targets: Mapping[str, Target]) -> Example:
        """Return the pair, the longer text cut at front or back at random, token by token (google-research/bert)."""
        left, right = shares(len(first.ids), len(second.ids), self.length - PAIR_SPECIALS)
        truncated = len(first.ids) + len(second.ids) - left - right
        if truncated:
            first, second = _cut(first, left, rng), _cut(second, right, rng)
        return self._sequence((first, second), truncated=truncated, targets=targets)

    def aim(self, room: int, rng: np.random.Generator) -> int:
        """Return how many pieces to aim at: `room`, or for a share `short` of the calls a random 2..room."""
        return int(rng.integers(2, room + 1)) if rng.random() < self.short else room

    def spans(self, documents: Sequence[Document], rng: np.random.Generator) -> Iterator[Example]:
        """Yield sequences that hold as many consecutive whole sentences of one document as fit, and every piece once.

        Only a sentence longer than a sequence is cut, into parts that are all used.
        """
        room = self.length - SINGLE_SPECIALS
        for document in documents:
            bounds = boundaries(document, longest=room)
            place = 0
            while place < len(bounds) - 1:
                end = max(place + 1, bisect_right(bounds, bounds[place] + self.aim(room, rng)) - 1)
                run = slice(bounds[place], bounds[end])
                yield self.single(document.ids[run], document.words[run])
                place = end

    def _sequence(
        self, runs: tuple[Run, ...], *, truncated: int, record: int = 0, targets: Mapping[str, Target] | None = None
    ) -> Example:
        n = 1 + len(runs)
        for run in runs:
            n += len(run.ids)
        ids, segments = np.empty(n, np.int32), np.zeros(n, np.int8)
        words, special = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        ids[0], special[0] = self.tokenizer.cls, True
        end = 0
        for segment, run in enumerate(runs):
            start, end = end + 1, end + 1 + len(run.ids)
            ids[start:end], ids[end] = run.ids, self.tokenizer.sep
            words[start:end], special[end] = run.words, True
            segments[start : end + 1] = segment
        return Example(
            ids=ids,
            segments=segments,
            words=words,
            special=special,
            targets=targets or {},
            record=record,
            truncated=truncated,
        )


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many pieces two texts keep when one piece at a time is taken from the longer (at a tie the second)."""
    if first + second <= room:
        return first, second
    left = min(first, max(room - second, room - room // 2))
    return left, room - left


def boundaries(document: Document, *, longest: int) -> list[int]:
    """Return the sentence boundaries of a document, with more of them inside sentences of more than `longest` pieces.

    An added boundary falls on a word start where there is one to be had.
    """
    bounds: list[int] = document.sentences.tolist()
    if not len(document) or np.diff(document.sentences).max() <= longest:
        return list(dict.fromkeys(bounds))
    parts = bounds[:1]
    for end in bounds[1:]:
        while end - parts[-1] > longest:
            start = parts[-1] + 1
            (words,) = np.nonzero(document.words[start : start + longest])
            parts.append(start + int(words[-1]) if len(words) else start + longest - 1)
        parts.append(end)
    return list(dict.fromkeys(parts))


def _cut(run: Run, size: int, rng: np.random.Generator) -> Run:
    """Return `size` pieces of a run; each of the surplus pieces was taken from the front or the back by a coin."""
    surplus = len(run.ids) - size
    if not surplus:
        return run
    front = int(rng.binomial(surplus, 0.5))
    return Run(run.ids[front : front + size], run.words[front : front + size])
