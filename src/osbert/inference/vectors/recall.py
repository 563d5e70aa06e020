"""How many of the nearest vectors another search finds: recall@10 against the comparison with all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.inference.vectors.nearest import NearestRows

QUERIES = 200
"""Most vectors that look for their neighbours."""
NEAREST = 10
"""Neighbours of each that are compared."""
Blocks = Callable[[], Iterator[NDArray[Any]]]
"""Yields vectors (n, D) in blocks, anew with each call."""
Rankings = Sequence[tuple[NDArray[np.int64], Any]]
"""The indices of the nearest rows to each query, the nearest first, and their scores."""
Find = Callable[[NDArray[np.floating], int], Rankings]
"""Returns the rankings of queries (Q, D), of at most so many vectors."""


def measure_recall(blocks: Blocks, count: int, find: Find) -> float | None:
    """Return the fraction of the 10 nearest of `count` vectors that `find` has among its 10 nearest, too.

    The queries are up to QUERIES of the vectors themselves, evenly spaced; a vector is not its own neighbour. None if
    there are fewer than two vectors.
    """
    if count < 2:
        return None
    rows = choose_rows(count, QUERIES)
    samples, first = [], 0
    for block in blocks():
        samples.append(block[rows[(rows >= first) & (rows < first + len(block))] - first])
        first += len(block)
    queries = np.concatenate(samples)
    return compare_neighbours(rows, search_blocks(blocks)(queries, NEAREST + 1), find(queries, NEAREST + 1))


def choose_rows(count: int, most: int) -> NDArray[np.int64]:
    """Return the indices of at most `most` of `count` rows, evenly spaced.

    >>> choose_rows(10, 4).tolist()
    [0, 3, 6, 9]
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def compare_neighbours(rows: NDArray[np.int64], exact: Rankings, approximate: Rankings) -> float:
    """Return the fraction of the 10 nearest neighbours of rows, the row itself left out, that both rankings have.

    >>> scores = np.zeros(2)
    >>> compare_neighbours(np.array([0]), [(np.array([0, 2, 3]), scores)], [(np.array([2, 4]), scores)])
    0.5
    """
    neighbours = [
        [[index for index in indices.tolist() if index != row][:NEAREST] for row, (indices, _) in zip(rows, rankings)]
        for rankings in (exact, approximate)
    ]
    hits = sum(len({*first} & {*second}) for first, second in zip(*neighbours, strict=True))
    return hits / sum(map(len, neighbours[0]))


def search_blocks(blocks: Blocks) -> Find:
    """Return the search that compares all vectors."""

    def find(queries: NDArray[np.floating], count: int) -> Rankings:
        nearest = NearestRows(queries, count)
        for block in blocks():
            nearest.compare(block.astype(np.float32, copy=False))
        return nearest.ranked

    return find
