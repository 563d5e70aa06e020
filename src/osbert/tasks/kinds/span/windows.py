"""A question and a long paragraph -> overlapping windows: sequences with the character ranges of their pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example
from osbert.data.long_texts import spread
from osbert.data.pack import Packer, PieceRun
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.tokenizer import Encoding

PARAGRAPHS = 1 << 14
"""Number of paragraphs whose pieces are cached; they recur with each question and in each epoch."""
KEPT = 1 << 14
"""Characters of the longest paragraph that is cached."""


@dataclass(frozen=True, kw_only=True)
class QuestionWindow(Example):
    """A sequence [CLS] question [SEP] w pieces of the paragraph [SEP].

    `first`: index of the paragraph's first token. `starts`, `ends` (w,): the range of each piece in characters of the
    paragraph. `assign_windows` (w,): whether the piece has most context in this window.
    """

    first: int
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    owned: Booleans


@dataclass(frozen=True, kw_only=True)
class Cutter:
    """Splits questions and paragraphs: at most `question` pieces of a question, and windows with the stride `stride`.

    A question never takes more than half of a sequence.
    """

    packer: Packer
    question: int
    stride: int

    @property
    def most(self) -> int:
        """Return the most pieces of a question that are used."""
        return min(self.question, self.packer.room(2) // 2)

    def question_pieces(self, text: str) -> tuple[PieceRun, int]:
        """Return the question's pieces, and the number of pieces that were cut off."""
        ids = self.packer.tokenizer.encode(text)
        size = min(len(ids), self.most)
        return PieceRun.of(ids[:size], self.packer.tokenizer), len(ids) - size

    def windows(self, question: str, paragraph: str, *, record: int) -> Iterator[tuple[int, QuestionWindow]]:
        """Yield (index of the first piece of the paragraph, window).

        `truncated` of the first window counts the pieces that were cut off the question.
        """
        question_run, truncated = self.question_pieces(question)
        pieces = encoding(self.packer.tokenizer, paragraph)
        run = PieceRun.of(pieces.ids, self.packer.tokenizer)
        bounds = spread(len(pieces), self.packer.room(2) - len(question_run.ids), self.stride)
        owners = assign_windows(len(pieces), bounds)
        for number, (begin, end) in enumerate(bounds):
            example = self.packer.pair(question_run, PieceRun(run.ids[begin:end], run.words[begin:end]), record=record)
            yield (
                begin,
                QuestionWindow(
                    ids=example.ids,
                    segments=example.segments,
                    words=example.words,
                    special=example.special,
                    record=record,
                    truncated=0 if number else truncated,
                    first=self.packer.form.second(len(question_run.ids)),
                    starts=pieces.starts[begin:end],
                    ends=pieces.ends[begin:end],
                    owned=owners[begin:end] == number,
                ),
            )


def encoding(tokenizer: AnyTokenizer, paragraph: str) -> Encoding:
    """Return the paragraph's pieces with their ranges in characters."""
    return _encode_cached(tokenizer, paragraph) if len(paragraph) <= KEPT else tokenizer.encode_with_offsets(paragraph)


@lru_cache(maxsize=PARAGRAPHS)
def _encode_cached(tokenizer: AnyTokenizer, paragraph: str) -> Encoding:
    return tokenizer.encode_with_offsets(paragraph)


def covering(pieces: Encoding, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last piece that overlap the characters [start, end), None if there is none."""
    # starts and ends never decrease, so both are found by binary search.
    first = int(np.searchsorted(pieces.ends, start, side="right"))
    last = int(np.searchsorted(pieces.starts, end, side="left")) - 1
    return (first, last) if first <= last else None


def assign_windows(pieces: int, bounds: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the window (pieces,) in which each piece has most context, the first one in a tie.

    Context is the smaller of the numbers of pieces before and after it, plus 0.01 times the window's size as a tie
    breaker (as in google-research/bert's run_squad.py).
    """
    owners = np.zeros(pieces, np.int64)
    most = np.full(pieces, -1.0)
    for number, (begin, end) in enumerate(bounds):
        before = np.arange(end - begin)
        # The reversed array is the number of pieces after each one.
        context = np.minimum(before, before[::-1]) + 0.01 * (end - begin)
        better = context > most[begin:end]
        owners[begin:end][better] = number
        most[begin:end][better] = context[better]
    return owners
