"""GloVe: a weighted least-squares fit of the logarithms of counts of co-occurring words (pair_counts.py).

Pennington, Socher and Manning (2014). The fit is AdaGrad as in their code, on many cells of the table at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CLIP = 100.0
"""The largest gradient of one number, as in GloVe's code."""


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
        drawn = (torch.rand(2, words, width + 1, dtype=torch.float32, generator=generator) - 0.5) / width
        squares = torch.ones(2, words, width + 1, dtype=torch.float32)
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
