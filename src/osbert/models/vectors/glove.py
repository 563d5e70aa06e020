"""GloVe: counts of co-occurring words, and a weighted least-squares fit of their logarithms.

Pennington, Socher and Manning (2014). The fit is AdaGrad as in their code, on many cells of the table at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CLIP = 100.0
"""The largest gradient of one number, as in GloVe's code."""

Cells = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]
"""The nonzero cells of the table of counts: rows, columns and counts, each (n,)."""


class PairCounts:
    """Counts co-occurring words: each pair at a distance d adds 1 / d, in both orders.

    Memory grows with the number of different pairs, 16 bytes each.

    >>> counts = PairCounts(words=3, window=2)
    >>> counts.add(np.array([0, 1, 2, 1]), np.array([0, 0, 0, 0]))
    >>> [array.tolist() for array in counts.cells()]
    [[0, 0, 1, 1, 1, 2, 2], [1, 2, 1, 2, 0, 0, 1], [1.0, 0.5, 1.0, 2.0, 1.0, 0.5, 2.0]]
    """

    def __init__(self, *, words: int, window: int) -> None:
        """Count pairs of `words` words that are at most `window` words apart."""
        self.words = words
        self.window = window
        self._keys = np.zeros(0, np.int64)
        """The number low * words + high of each pair, increasing."""
        self._values = np.zeros(0)
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []

    def add(self, ids: NDArray[np.integer], texts: NDArray[np.integer]) -> None:
        """Count the pairs in words `ids` (n,); `texts` (n,) numbers their texts, and no pair spans two texts."""
        keys, values = [], []
        ids = ids.astype(np.int64)
        for distance in range(1, min(self.window, len(ids) - 1) + 1):
            # Pairs at one distance: the array against itself, shifted.
            together = texts[distance:] == texts[:-distance]
            first, second = ids[:-distance][together], ids[distance:][together]
            # One number per unordered pair, so that a sort groups equal pairs.
            keys.append(np.minimum(first, second) * self.words + np.maximum(first, second))
            values.append(np.full(len(first), 1 / distance))
        if keys:
            self._waiting.append(_summed(np.concatenate(keys), np.concatenate(values)))
        # Merged when the waiting pairs outgrow the table: amortised cost, bounded memory.
        if sum(len(keys) for keys, _ in self._waiting) > max(1 << 22, len(self._keys)):
            self._merge()

    def cells(self) -> Cells:
        """Return the counts of all pairs, ordered by row; a pair of equal words counts twice, as in GloVe's code."""
        self._merge()
        low, high = (self._keys // self.words).astype(np.int32), (self._keys % self.words).astype(np.int32)
        # The table is symmetric: cells off the diagonal appear as (low, high) and (high, low).
        counts = (self._values * np.where(low == high, 2, 1)).astype(np.float32)
        other = low != high
        rows, columns = np.concatenate([low, high[other]]), np.concatenate([high, low[other]])
        order = np.argsort(rows, kind="stable")
        return rows[order], columns[order], np.concatenate([counts, counts[other]])[order]

    def _merge(self) -> None:
        parts = [(self._keys, self._values), *self._waiting]
        self._keys, self._values = _summed(*(np.concatenate(column) for column in zip(*parts)))
        self._waiting = []


@dataclass(frozen=True, kw_only=True)
class GloveTables:
    """The parameters, (V, D + 1) each: vectors of words and contexts, with the bias as last column.

    `word_squares`, `context_squares`: 1 plus the sum of squared gradients, for AdaGrad.
    """

    words: Tensor
    contexts: Tensor
    word_squares: Tensor
    context_squares: Tensor

    @classmethod
    def fresh(cls, words: int, width: int, generator: torch.Generator) -> GloveTables:
        """Return vectors from U(-.5, .5) / D and squares of 1, as GloVe's code starts."""
        drawn = (torch.rand(2, words, width + 1, generator=generator) - 0.5) / width
        squares = torch.ones(2, words, width + 1)
        return cls(words=drawn[0], contexts=drawn[1], word_squares=squares[0], context_squares=squares[1])


def learn_cells(
    tables: GloveTables, cells: tuple[Tensor, Tensor, Tensor], *, largest: float, exponent: float, rate: float
) -> float:
    """Take a step of AdaGrad for some cells (rows, columns, counts) and return the sum of their losses.

    The loss of a cell is f(X) (w.c + b + b' - ln X)^2 / 2 with f(X) = min(1, (X / largest)^exponent) (equations 8 and
    9). A gradient, clipped to CLIP and multiplied by the rate, is divided by the root of the sum of earlier squares;
    its square is then added to the sum. In GloVe's code the gradients of biases are not multiplied by the rate; here
    they are.
    """
    rows, columns, counts = cells
    words, contexts = tables.words[rows], tables.contexts[columns]
    width = words.shape[1] - 1
    error = (words[:, :width] * contexts[:, :width]).sum(1) + words[:, width] + contexts[:, width] - counts.log()
    weighted = (counts / largest).clamp_(max=1).pow_(exponent) * error  # (n,)
    # The factor of a bias is 1: with it in the last column, one formula gives the gradients of vectors and biases.
    # `words` and `contexts` are copies (indexing by a tensor), so the tables are not changed here.
    words[:, width] = contexts[:, width] = 1
    for table, squares, index, other in (
        (tables.words, tables.word_squares, rows, contexts),
        (tables.contexts, tables.context_squares, columns, words),
    ):
        gradient = (weighted[:, None] * other).clamp_(-CLIP, CLIP).mul_(rate)
        table.index_add_(0, index, gradient / squares[index].sqrt_(), alpha=-1)
        squares.index_add_(0, index, gradient.square_())
    return float((weighted * error).sum()) / 2


def _summed(keys: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the distinct keys, increasing, and the sum of the values of each."""
    if not len(keys):
        return keys, values
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    # Starts of runs of equal keys; reduceat sums from each start to the next.
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(values, starts)
