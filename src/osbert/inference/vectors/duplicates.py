"""Near duplicates among vectors: which rows are similar to an earlier row that is kept; exact, block by block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from osbert.inference.vectors.nearest import MARGIN, pair_cosines

BLOCK = 2**12
"""Rows of a block: the cosines of two blocks, 64 MB, are in memory at a time."""
ROUNDING = 1e-6
"""How much less than 1 the cosine of equal vectors may be."""


class Duplicates:
    """Rows of unit vectors (n, D) in their order: a row is kept unless a kept row before it has a cosine of `least`.

    `kept`: (n,) for each row the place of the row that stands for it: its own if it is kept, else that of the most
    alike kept row before it, of equals the first. `cosines`: (n,) with that row. So no two kept rows are as alike as
    `least`, and every other row is that alike one of them.

    >>> found = Duplicates(np.array([[1, 0], [0, 1], [1, 0]], np.float32), 0.9)
    >>> found.find()
    >>> found.kept.tolist(), found.cosines.tolist()
    ([0, 1, 0], [1.0, 1.0, 1.0])
    """

    def __init__(self, vectors: NDArray[np.float32], least: float, *, block: int = BLOCK) -> None:
        """Prepare for vectors of length 1, which may be a map of a file."""
        self.vectors = vectors
        self.least = min(least, 1 - ROUNDING)
        self.block = block
        self.kept = np.arange(len(vectors))
        self.cosines = np.full(len(vectors), -1, np.float32)

    def find(self, watch: Callable[[int, int], None] = lambda done, count: None) -> None:
        """Fill `kept` and `cosines`; `watch` gets how many pairs of blocks of how many were compared."""
        blocks = -(-len(self.vectors) // self.block)
        for number in range(blocks):
            first = number * self.block
            rows = np.array(self.vectors[first : first + self.block])
            for before in range(0, first, self.block):
                self._compare_earlier(before, first, rows)
            self._compare_inside(first, rows)
            watch((number + 1) * (number + 2) // 2, blocks * (blocks + 1) // 2)
        own = self.kept == np.arange(len(self.kept))
        self.cosines[own] = 1

    def _compare_earlier(self, before: int, first: int, rows: NDArray[np.float32]) -> None:
        """Compare rows from `first` with the kept ones of an earlier block."""
        places = np.arange(before, before + self.block)
        places = places[self.kept[places] == places]
        if not len(places):
            return
        kept = self.vectors[places]
        scores = kept @ rows.T  # (kept, rows)
        most = scores.max(axis=0)
        alike = np.flatnonzero(most >= self.least - MARGIN)
        hits = scores[:, alike] >= np.maximum(self.least, most[alike]) - MARGIN
        found, columns = np.nonzero(hits.T)[::-1]  # by row, so that of equals the earlier comes first
        columns = alike[columns]
        cosines = pair_cosines(kept, found, rows, columns)
        order = np.lexsort((found, -cosines, columns))
        chosen = order[np.unique(columns[order], return_index=True)[1]]
        self._take(first + columns[chosen], places[found[chosen]], cosines[chosen])

    def _compare_inside(self, first: int, rows: NDArray[np.float32]) -> None:
        """Compare the rows of a block with those before them in it."""
        own = np.arange(first, first + len(rows))
        if (self.kept[own] != own).all():
            return
        likely = np.triu(rows @ rows.T >= self.least - MARGIN, 1)
        for place in np.flatnonzero(likely.any(axis=1)).tolist():
            if self.kept[first + place] == first + place:
                others = np.flatnonzero(likely[place])
                cosines = pair_cosines(rows, np.full(len(others), place), rows, others)
                self._take(first + others, np.full(len(others), first + place), cosines)

    def _take(self, rows: NDArray[np.int64], kept: NDArray[np.int64], cosines: NDArray[np.float32]) -> None:
        """Let kept rows stand for rows, each named once, where they are alike enough, and more so than before."""
        better = (cosines >= np.float32(self.least)) & (cosines > self.cosines[rows])
        self.kept[rows[better]] = kept[better]
        self.cosines[rows[better]] = cosines[better]
