"""Vectors of words from their bytes: convolutions, highway layers and a projection (Kim et al. 2016; ELMo)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from osbert.models.fast.linear import Linear
from osbert.text.file_tokenizer import AnyTokenizer
from osbert_lab.recurrent.bilm_architecture import CONVOLUTIONS, BilmArchitecture

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


class Highway(nn.Module):
    """(U, F) -> (U, F): a gated sum of the input and a layer of it (Srivastava et al. 2015, equation 3)."""

    def __init__(self, width: int) -> None:
        """Make the transform and the gate."""
        super().__init__()
        self.transform = Linear(width, width)
        self.carry = Linear(width, width)

    def forward(self, values: Tensor) -> Tensor:
        """Return gate * relu(transform(values)) + (1 - gate) * values."""
        return torch.lerp(values, self.transform(values).relu(), self.carry(values).sigmoid())


class CharacterEncoder(nn.Module):
    """Pieces (N,) -> vectors (N, D / 2), computed once for each distinct piece from its spelling."""

    spelling: Tensor

    def __init__(self, sizes: BilmArchitecture) -> None:
        """Make the layers. `spelling` (V, longest) has no values until `spell` or `initialise`."""
        super().__init__()
        self.register_buffer("spelling", torch.empty(sizes.vocabulary, sizes.spelling, dtype=torch.int16))
        self.rows = nn.Embedding(ROWS, sizes.characters)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(sizes.characters, count, width) for width, count in enumerate(sizes.counts, start=1)
        )
        self.highways = nn.Sequential(*(Highway(sizes.filters) for _ in range(sizes.highways)))
        self.projection = Linear(sizes.filters, sizes.side)

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise all weights with bilm-tf's deviations; a piece is spelt as the decimal number of its id."""
        self.spelling = numerals(*self.spelling.shape).to(self.spelling.device)
        self.rows.weight.uniform_(-1, 1)
        for part in self.modules():
            if isinstance(part, nn.Conv1d):
                part.weight.uniform_(-0.05, 0.05)
            elif isinstance(part, Linear):
                part.weight.normal_(0, 1 / math.sqrt(part.in_features))
            if isinstance(part, nn.Conv1d | Linear) and part.bias is not None:
                part.bias.zero_()
        for part in self.modules():
            if isinstance(part, Highway):
                part.carry.bias.fill_(-2)  # sigmoid(-2) = 0.12: at first a highway mostly copies its input

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors (N, D / 2) of pieces (N,)."""
        distinct, indices = ids.unique(return_inverse=True)
        spelling = self.spelling[distinct]  # (U, longest)
        # Columns after the longest word are padding. Each convolution needs one window of it, for the maximum.
        used = int((spelling != PADDING).sum(1).max()) + CONVOLUTIONS
        letters = self.rows(spelling[:, :used].long()).transpose(1, 2)  # (U, characters, used)
        # Max-pooling over all windows of a word (Kim et al. 2016, equation 7).
        maxima = [convolution(letters).amax(2) for convolution in self.convolutions]  # each (U, filters of a width)
        return self.projection(self.highways(torch.cat(maxima, 1).relu()))[indices]
