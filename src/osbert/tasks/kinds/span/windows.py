"""A question and a long paragraph -> overlapping windows, each a sequence that knows where its pieces stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example
from osbert.data.pack import Packer, PieceRun
from osbert.data.windows import spread
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.tokenizer import Encoding

PARAGRAPHS = 1 << 14
"""Paragraphs whose pieces are kept: they come again with each of their questions, and in each epoch."""
KEPT = 1 << 14
"""Characters of the longest paragraph that is kept."""


@dataclass(frozen=True, kw_only=True)
class QuestionWindow(Example):
    """A sequence [CLS] question [SEP] w pieces of the paragraph [SEP].

    `first`: the token with which the paragraph begins. `starts`, `ends` (w,): the characters of the paragraph that
    each piece covers. `owned` (w,): whether this is the window in which the piece has most context.
    """

    first: int
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    owned: Booleans


@dataclass(frozen=True, kw_only=True)
class Cutter:
    """How questions and paragraphs are cut: at most `question` pieces, and windows `stride` pieces apart.

    A question never takes more than half of a sequence.
    """

    packer: Packer
    question: int
    stride: int

    @property
    def most(self) -> int:
        """Return the most pieces of a question that are read."""
        return min(self.question, self.packer.room(2) // 2)

    def question_pieces(self, text: str) -> tuple[PieceRun, int]:
        """Return the question's pieces, and how many do not fit."""
        ids = self.packer.tokenizer.encode(text)
        size = min(len(ids), self.most)
        return PieceRun.of(ids[:size], self.packer.tokenizer), len(ids) - size

    def windows(self, question: str, paragraph: str, *, record: int) -> Iterator[tuple[int, QuestionWindow]]:
        """Yield the windows, each with the number of the paragraph's piece that it begins with.

        The first one counts the pieces of the question that did not fit.
        """
        asked, truncated = self.question_pieces(question)
        pieces = encoding(self.packer.tokenizer, paragraph)
        run = PieceRun.of(pieces.ids, self.packer.tokenizer)
        bounds = spread(len(pieces), self.packer.room(2) - len(asked.ids), self.stride)
        owners = owned(len(pieces), bounds)
        for number, (begin, end) in enumerate(bounds):
            example = self.packer.pair(asked, PieceRun(run.ids[begin:end], run.words[begin:end]), record=record)
            yield (
                begin,
                QuestionWindow(
                    ids=example.ids,
                    segments=example.segments,
                    words=example.words,
                    special=example.special,
                    record=record,
                    truncated=0 if number else truncated,
                    first=self.packer.form.second(len(asked.ids)),
                    starts=pieces.starts[begin:end],
                    ends=pieces.ends[begin:end],
                    owned=owners[begin:end] == number,
                ),
            )


def encoding(tokenizer: AnyTokenizer, paragraph: str) -> Encoding:
    """Return the paragraph's pieces with their characters."""
    return _kept(tokenizer, paragraph) if len(paragraph) <= KEPT else tokenizer.encode_with_offsets(paragraph)


@lru_cache(maxsize=PARAGRAPHS)
def _kept(tokenizer: AnyTokenizer, paragraph: str) -> Encoding:
    return tokenizer.encode_with_offsets(paragraph)


def covering(pieces: Encoding, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last piece of those that hold the characters [start, end), None when none does."""
    first = int(np.searchsorted(pieces.ends, start, side="right"))
    last = int(np.searchsorted(pieces.starts, end, side="left")) - 1
    return (first, last) if first <= last else None


def owned(pieces: int, bounds: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Return for each piece (pieces,) the window in which it has most context (the first of equal ones).

    Context is the lesser of what stands before and after the piece, and a hundredth of the window's size, which
    decides between windows where it is the same.
    """
    owners = np.zeros(pieces, np.int64)
    most = np.full(pieces, -1.0)
    for number, (begin, end) in enumerate(bounds):
        before = np.arange(end - begin)
        context = np.minimum(before, before[::-1]) + 0.01 * (end - begin)
        better = context > most[begin:end]
        owners[begin:end][better] = number
        most[begin:end][better] = context[better]
    return owners
