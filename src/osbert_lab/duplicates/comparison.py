"""Near duplicates among vectors: rows that are similar to an earlier row that is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from osbert.inference.vectors.nearest import MARGIN, pair_cosines

BLOCK = 2**12
"""Rows in a block. The cosines of two blocks take 64 MB of memory."""
ROUNDING = 1e-6
"""Rounding of the cosine of equal vectors: it may be this much below 1."""


class Duplicates:
    """Near duplicates among unit vectors (n, D): a row is kept if its cosines with earlier kept rows are below `least`.

    `kept` (n,): the index of the row that represents each row: its own if it is kept, else that of the most similar
    earlier kept row (the first of equal ones). `cosines` (n,): the cosine with that row. So the cosine of two kept rows
    is below `least`, and every other row has a kept row with a cosine of at least `least`.

    >>> found = Duplicates(np.array([[1, 0], [0, 1], [1, 0]], np.float32), 0.9)
    >>> found.find()
    >>> found.kept.tolist(), found.cosines.tolist()
    ([0, 1, 0], [1.0, 1.0, 1.0])
    """

    def __init__(self, vectors: NDArray[np.float32], least: float, *, block: int = BLOCK) -> None:
        """Prepare for vectors of length 1, which may be a memory map. Each row represents itself at first."""
        self.vectors = vectors
        self.least = min(least, 1 - ROUNDING)
        self.block = block
        self.kept = np.arange(len(vectors))
        self.cosines = np.full(len(vectors), -1, np.float32)

    def find(self, watch: Callable[[int, int], None] = lambda done, count: None) -> None:
        """Fill `kept` and `cosines`; `watch` is called with the number of compared pairs of blocks and their total."""
        blocks = -(-len(self.vectors) // self.block)
        for number in range(blocks):
            first = number * self.block
            rows = np.array(self.vectors[first : first + self.block])
            # Blocks before this one are final, so a row's earlier kept rows are known when it is compared.
            for before in range(0, first, self.block):
                self._compare_earlier(before, first, rows)
            self._compare_inside(first, rows)
            watch((number + 1) * (number + 2) // 2, blocks * (blocks + 1) // 2)
        is_kept = self.kept == np.arange(len(self.kept))
        self.cosines[is_kept] = 1

    def _compare_earlier(self, before: int, first: int, rows: NDArray[np.float32]) -> None:
        """Compare the block of rows that starts at `first` with the kept rows of an earlier block."""
        kept_rows = np.arange(before, before + self.block)
        kept_rows = kept_rows[self.kept[kept_rows] == kept_rows]
        if not len(kept_rows):
            return
        kept_vectors = self.vectors[kept_rows]
        # The product only finds candidates: its rounding depends on the shape, so their cosines are computed again.
        scores = kept_vectors @ rows.T  # (kept, rows)
        most = scores.max(axis=0)
        alike = np.flatnonzero(most >= self.least - MARGIN)
        hits = scores[:, alike] >= np.maximum(self.least, most[alike]) - MARGIN
        matches, columns = np.nonzero(hits.T)[::-1]  # by row, so that of equals the earlier comes first
        columns = alike[columns]
        cosines = pair_cosines(kept_vectors, matches, rows, columns)
        # Sorted by row, then by falling cosine, then by index: the first entry of each row is its best match.
        order = np.lexsort((matches, -cosines, columns))
        chosen = order[np.unique(columns[order], return_index=True)[1]]
        self._take(first + columns[chosen], kept_rows[matches[chosen]], cosines[chosen])

    def _compare_inside(self, first: int, rows: NDArray[np.float32]) -> None:
        """Compare each row of a block with the earlier rows of the same block."""
        indices = np.arange(first, first + len(rows))
        if (self.kept[indices] != indices).all():
            return
        # Row i, column j: whether a later row j may be a duplicate of row i. Rows are visited in order, since only rows
        # that are still kept represent others.
        likely = np.triu(rows @ rows.T >= self.least - MARGIN, 1)
        for row in np.flatnonzero(likely.any(axis=1)).tolist():
            if self.kept[first + row] == first + row:
                others = np.flatnonzero(likely[row])
                cosines = pair_cosines(rows, np.full(len(others), row), rows, others)
                self._take(first + others, np.full(len(others), first + row), cosines)

    def _take(self, rows: NDArray[np.int64], kept_rows: NDArray[np.int64], cosines: NDArray[np.float32]) -> None:
        """Assign kept rows to rows (each at most once) if the cosine is at least `least` and above the one so far."""
        better = (cosines >= np.float32(self.least)) & (cosines > self.cosines[rows])
        self.kept[rows[better]] = kept_rows[better]
        self.cosines[rows[better]] = cosines[better]
