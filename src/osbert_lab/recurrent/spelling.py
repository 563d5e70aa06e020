"""The spelling of a vocabulary's pieces in bytes, as bilm-tf spells words for ELMo (Peters et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from osbert.text.file_tokenizer import AnyTokenizer

SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = range(256, 261)
"""The rows after those of the 256 bytes, in bilm-tf's order."""
ROWS = 261


def spell_word(content: Sequence[int], longest: int) -> list[int]:
    """Return the bytes of a word between its start and end marks, truncated and padded to `longest`.

    >>> spell_word("né".encode(), 7)
    [258, 110, 195, 169, 259, 260, 260]
    >>> spell_word("longest".encode(), 5)
    [258, 108, 111, 110, 259]
    """
    symbols = [WORD_BEGIN, *content[: longest - 2], WORD_END]
    return symbols + [PADDING] * (longest - len(symbols))


def spellings(tokenizer: AnyTokenizer, longest: int) -> Tensor:
    """Return the spelling (V, longest) of each piece, int16.

    The special pieces around a text are spelt as the marks of a sentence's start and end, other special pieces as in
    the vocabulary.
    """
    words: list[Sequence[int]] = [piece.encode() for piece in tokenizer.vocabulary]
    for index in tokenizer.form.after:
        words[index] = [SENTENCE_END]
    for index in tokenizer.form.before:
        words[index] = [SENTENCE_BEGIN]
    return torch.tensor([spell_word(word, longest) for word in words], dtype=torch.int16)


def numerals(count: int, longest: int) -> Tensor:
    """Return placeholder spellings (count, longest): the decimal number of each id, int16."""
    return torch.tensor([spell_word(str(index).encode(), longest) for index in range(count)], dtype=torch.int16)
