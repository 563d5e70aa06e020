"""The word of each token of a sequence.

A task encodes a record as usual, but with a tokenizer that returns numbers of pieces in place of ids. So each token of
a sequence shows which piece it is, even after cutting, windowing or repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Integers
from osbert.data.pack import Packer
from osbert.tasks import Record, Task
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.tokenizer import Encoding
from osbert.text.words import Range, ranges


class TextWord(NamedTuple):
    """The characters `start` to `end` of text number `text` of a record."""

    text: int
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class TokenWords:
    """The words in the sequences of a record, in text order; for each sequence the word of each token.

    `tokens`: (n,) for each sequence, indices into `words`, -1 for tokens of no word.
    """

    words: Sequence[TextWord]
    tokens: Sequence[Integers]


def token_words(task: Task, record: Record, packer: Packer) -> TokenWords:
    """Return the words of the sequences that a task makes of a record."""
    numbers = PieceNumbers(packer.tokenizer)
    texts = tuple(NumberedText.of(text, index) for index, text in enumerate(record.texts))
    counting = replace(packer, tokenizer=cast(AnyTokenizer, numbers))
    examples = task.encode(replace(record, texts=texts, label=None), counting)
    # Special pieces keep their ids, which must not be looked up as numbers: 0 stands in for them.
    tokens = [
        np.where(example.special, -1, numbers.word_of(np.where(example.special, 0, example.ids)))
        for example in examples
    ]
    return in_order(numbers.words, tokens)


def in_order(words: Sequence[TextWord], tokens: Sequence[Integers]) -> TokenWords:
    """Return the words that occur in the sequences, by text and position, and their indices for the tokens."""
    # The appended -1 sorts first, so [1:] drops it, also if no special piece is there.
    held = np.unique(np.concatenate([*tokens, np.array([-1])]))[1:].tolist()
    order = sorted(held, key=lambda number: words[number])
    ranks = np.full(len(words) + 1, -1)
    ranks[order] = np.arange(len(order))  # the last one is that of -1
    return TokenWords(words=[words[number] for number in order], tokens=[ranks[sequence] for sequence in tokens])


def words_of_pieces(text: str, starts: Integers, ends: Integers) -> tuple[list[Range], NDArray[np.integer]]:
    """Return the ranges of the words of a text, and the word (n,) of each piece, given by `starts` and `ends` (n,).

    Words end at spaces and punctuation, and each ideograph is one. Words that one piece overlaps are merged.

    >>> words_of_pieces("so good!!", np.array([0, 3, 5, 7]), np.array([2, 5, 7, 9]))
    ([(0, 2), (3, 7), (7, 9)], array([0, 1, 1, 2]))
    """
    word_ranges = np.array(ranges(text, "words") or [(0, len(text))])
    # The first word that ends after a piece's start, and the last one that starts before its end.
    first = np.minimum(np.searchsorted(word_ranges[:, 1], starts, side="right"), len(word_ranges) - 1)
    last = np.maximum(np.searchsorted(word_ranges[:, 0], ends, side="left") - 1, first)
    # A difference array: after cumsum, reach[w] > 0 if some piece spans word w - 1 and word w.
    reach = np.zeros(len(word_ranges) + 1, np.int64)
    np.add.at(reach, np.minimum(first + 1, len(word_ranges)), 1)
    np.add.at(reach, last + 1, -1)
    begins = np.flatnonzero(np.cumsum(reach)[:-1] <= 0)
    bounds = zip(word_ranges[begins, 0].tolist(), word_ranges[np.append(begins[1:], len(word_ranges)) - 1, 1].tolist())
    # The merged word of a piece is the last one that begins at its first word or before.
    return list(bounds), np.searchsorted(begins, first, side="right") - 1


class NumberedText(str):
    """A text with its index among the texts of a record; two texts may have the same characters."""

    number: int

    @classmethod
    def of(cls, text: str, number: int) -> NumberedText:
        """Return `text` with its index."""
        numbered_text = cls(text)
        numbered_text.number = number
        return numbered_text


class PieceNumbers:
    """A tokenizer that returns a number for each piece, unique and from 1, instead of its id.

    Texts without an index, which are not texts of the record, have no words.
    """

    id_type = np.dtype("<u4")
    unknown = 0

    def __init__(self, tokenizer: AnyTokenizer) -> None:
        self.tokenizer = tokenizer
        self.words: list[TextWord] = []
        self._words = [-1]
        self._continues = [False]
        self._encodings: dict[tuple[str, int], Encoding] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    @property
    def continuation(self) -> NDArray[np.bool_]:
        """Return for each number whether its piece continues a word."""
        return np.array(self._continues)

    def word_of(self, numbers: Integers) -> NDArray[np.integer]:
        """Return the word of each number, -1 for none."""
        return np.array(self._words)[numbers]

    def encode(self, text: str) -> NDArray[np.int32]:
        """Return the numbers (n,) of a text's pieces."""
        return self.encode_with_offsets(text).ids

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the numbers of a text's pieces and their offsets; the same numbers at every call."""
        number = getattr(text, "number", -1)
        key = (str(text), number)
        if key not in self._encodings:
            encoding = self.tokenizer.encode_with_offsets(text)
            bounds, words = words_of_pieces(text, encoding.starts, encoding.ends)
            self._encodings[key] = replace(
                encoding, ids=self._number_pieces(encoding.ids, self._add_words(number, bounds), words)
            )
        return self._encodings[key]

    def encode_words(self, text: str, words: Iterable[Range]) -> list[bytes]:
        """Return the numbers of the pieces of each word, as bytes; a word without pieces gets one number."""
        bounds = list(words)
        first = self._add_words(getattr(text, "number", -1), bounds)
        word_numbers = []
        for word_index, part in enumerate(self.tokenizer.encode_words(text, bounds)):
            # A word without pieces gets one number (of id 0), since a task gives it one piece.
            ids = np.frombuffer(part or bytes(self.tokenizer.id_type.itemsize), self.tokenizer.id_type)
            numbers = self._number_pieces(ids, first, np.full(len(ids), word_index))
            word_numbers.append(numbers.astype(self.id_type).tobytes())
        return word_numbers

    def _add_words(self, number: int, bounds: Sequence[Range]) -> int:
        """Record the words of a text; return the index of the first, -1 for a text without an index."""
        first = len(self.words)
        if number < 0:
            return -1
        self.words += [TextWord(number, start, end) for start, end in bounds]
        return first

    def _number_pieces(self, ids: Integers, first: int, words: Integers) -> NDArray[np.int32]:
        """Return new numbers for pieces (n,) of the words with index `first` + `words` (n,)."""
        begin = len(self._words)
        self._words += (np.full(len(ids), -1) if first < 0 else first + words).tolist()
        self._continues += self.tokenizer.continuation[ids].tolist()
        return np.arange(begin, begin + len(ids), dtype=np.int32)
