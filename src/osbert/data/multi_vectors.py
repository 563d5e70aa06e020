"""The vectors of some texts, each with as many as it has tokens that count, and their comparison (MaxSim)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

CELLS = 2**22
"""Most similarities of two tokens in memory at a time."""


@dataclass(frozen=True, eq=False)
class MultiVectors(Sequence[NDArray[np.float32]]):
    """The vectors of n texts: text k has `vectors[starts[k]:starts[k + 1]]`, at least one, of the pieces `ids` there.

    `vectors` (N, D), `starts` (n + 1,), `ids` (N,). As a sequence it has the arrays (tokens, D) of the texts.

    >>> vectors = MultiVectors.of([np.eye(2, dtype=np.float32), np.ones((1, 2), np.float32)], [[5, 6], [7]])
    >>> len(vectors), vectors[1].tolist(), vectors[1:].ids.tolist()
    (2, [[1.0, 1.0]], [7])
    """

    vectors: NDArray[np.float32]
    starts: NDArray[np.int64]
    ids: NDArray[np.integer]

    @classmethod
    def of(cls, rows: Sequence[NDArray[np.float32]], ids: Iterable[Any]) -> MultiVectors:
        """Return the vectors (tokens, D) and the pieces (tokens,) of at least one text as one."""
        starts = np.cumsum([0, *map(len, rows)])
        return cls(np.concatenate(rows), starts, np.concatenate([np.asarray(row, np.int64) for row in ids]))

    @classmethod
    def stack(cls, blocks: Sequence[MultiVectors]) -> MultiVectors:
        """Return blocks as one."""
        return cls.of([row for block in blocks for row in block], [block.ids for block in blocks])

    @property
    def shape(self) -> tuple[int]:
        """The number of texts, (n,)."""
        return (len(self),)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, key: int) -> NDArray[np.float32]: ...

    @overload
    def __getitem__(self, key: slice | NDArray[np.int64]) -> MultiVectors: ...

    def __getitem__(self, key: int | slice | NDArray[np.int64]) -> NDArray[np.float32] | MultiVectors:
        """Return the vectors (tokens, D) of a text, or those of a run of texts, or of the texts at indices (k,)."""
        if isinstance(key, np.ndarray):
            rows, starts = rows_of(self.starts, key)
            return MultiVectors(self.vectors[rows], starts, self.ids[rows])
        if isinstance(key, slice):
            first, last, _ = key.indices(len(self))
            starts = self.starts[first : max(first, last) + 1]
            tokens = slice(starts[0], starts[-1])
            return MultiVectors(self.vectors[tokens], starts - starts[0], self.ids[tokens])
        number = range(len(self))[key]
        return self.vectors[self.starts[number] : self.starts[number + 1]]


def maxsim(queries: MultiVectors, texts: MultiVectors, *, mean: bool = False) -> NDArray[np.float32]:
    """Return the scores (Q, n) of n texts for Q queries: over a query's tokens, the sum of each one's largest product.

    Khattab & Zaharia 2020, equation 3; `mean`: the mean instead of the sum.

    >>> query = MultiVectors.of([np.array([[1, 0], [0, 1]], np.float32)], [[1, 2]])
    >>> texts = MultiVectors.of([np.array([[1, 0.5]], np.float32), np.ones((1, 2), np.float32)], [[1], [3]])
    >>> maxsim(query, texts).tolist()
    [[1.5, 2.0]]
    """
    scores: NDArray[np.float32] = np.empty((len(queries), len(texts)), np.float32)
    if not scores.size:
        return scores
    for first, last in spans(queries.starts, max(1, CELLS // len(texts.vectors))):
        part = queries[first:last]
        # The largest product of each of the queries' tokens with each text, then their sums by query.
        largest = np.maximum.reduceat(part.vectors @ texts.vectors.T, texts.starts[:-1], axis=1)
        scores[first:last] = np.add.reduceat(largest, part.starts[:-1], axis=0)
    if mean:
        scores /= np.diff(queries.starts)[:, None]
    return scores


def rows_of(starts: NDArray[np.int64], indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows (N,) of the texts at indices (k,), and their `starts` (k + 1,) there.

    >>> [array.tolist() for array in rows_of(np.array([0, 2, 3, 6]), np.array([2, 0]))]
    [[3, 4, 5, 0, 1], [0, 3, 5]]
    """
    sizes = starts[indices + 1] - starts[indices]
    chosen = np.concatenate([[0], np.cumsum(sizes)])
    return np.arange(chosen[-1]) + np.repeat(starts[indices] - chosen[:-1], sizes), chosen


def spans(starts: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield spans [first, last) of texts, each of at most `most` vectors or one text.

    >>> list(spans(np.array([0, 2, 4, 9]), 4))
    [(0, 2), (2, 3)]
    """
    first = 0
    while first < len(starts) - 1:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + most, "right")) - 1)
        yield first, last
        first = last
