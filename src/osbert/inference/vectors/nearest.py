"""Nearest neighbours in a file of vectors, exactly, block by block; and near duplicates.

Near duplicates are rows that are similar to an earlier row that is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.vectors.ranked import require_width
from osbert.inference.vectors.reading import VectorFile
from osbert.inference.vectors.settings import normalize_vectors


def unit_vectors(opened: VectorFile, folder: Path) -> NDArray[np.float32]:
    """Return the vectors of a file, scaled to length 1, as a memory map (n, D) in `folder`. Zero vectors stay zero.

    Raises UserError if a text has several vectors, or one is not finite; OSError on a full disk.
    """
    path, shape = folder / "unit.bin", (0, 0)
    with path.open("wb") as file:  # by appending: where the disk is full, writing to a map ends the process
        for block in opened.blocks():
            opened.require_single(block)
            lengths = finite_lengths(block, shape[0])
            (block / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32).tofile(file)
            shape = (shape[0] + len(block), block.shape[1])
    return np.memmap(path, np.float32, "r", shape=shape)


def finite_lengths(block: NDArray[np.floating], first: int) -> NDArray[np.float32]:
    """Return the lengths (n,) of vectors (n, D).

    Raises UserError with the number of the first vector that is not finite; `first` is the number of the first row.
    """
    lengths: NDArray[np.float32] = np.sqrt(np.einsum("nd,nd->n", block, block)).astype(np.float32, copy=False)
    if not np.isfinite(lengths).all():
        row = first + int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise UserError(
            f"Vector {row:,} (counted from 0) has infinite or undefined numbers. Make the vectors again.",
            code="not-finite",
        )
    return lengths


MARGIN = 1e-4
"""Bound for the difference between a cosine from a matrix product and the cosine of the two vectors alone.

The rounding of a product depends on its shape. So it only selects candidates, whose cosines are then computed pair by
pair. This makes results independent of the blocks."""
PAIRS = 2**16
"""Pairs of vectors in memory at a time."""


class NearestRows:
    """The `count` rows with the largest cosines for each of Q vectors, among the blocks compared so far.

    `places` (row indices) and `cosines`: (Q, k), the nearest first; of equal ones the earlier row. k is `count`, or the
    number of rows so far if that is lower.

    >>> found = NearestRows(np.array([[1.0, 0.0]]), count=2)
    >>> found.compare(np.array([[0.0, 1.0], [2.0, 0.0], [-3.0, 0.0]]))
    >>> found.places.tolist(), found.cosines.tolist()
    ([[1, 0]], [[1.0, 0.0]])
    """

    def __init__(self, queries: NDArray[np.floating], count: int) -> None:
        """Prepare for queries (Q, D) of any length. Raises UserError if one is not finite."""
        finite_lengths(queries, 0)
        self.queries = normalize_vectors(queries)
        self.count = count
        self.rows = 0
        self.places = np.empty((len(queries), 0), np.int64)
        self.cosines = np.empty((len(queries), 0), np.float32)

    @property
    def ranked(self) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The row indices and cosines (k,) of each vector."""
        return list(zip(self.places, self.cosines, strict=True))

    def compare(self, block: NDArray[np.floating], indices: NDArray[np.int64] | None = None) -> None:
        """Compare the next rows (n, D). Raises UserError if they have another width, or are not finite.

        `indices` (n,): what stands for them in `places`, by default the number of each among all rows.
        """
        require_width(self.queries.shape[1:], block.shape[1:])
        lengths = finite_lengths(block, self.rows)
        if not len(block):
            return
        queries, rows = np.divmod(np.flatnonzero(self._likely(block, lengths)), len(block))
        cosines = pair_cosines(self.queries, queries, block, rows)
        self._merge(queries, self.rows + rows if indices is None else indices[rows], cosines)
        self.rows += len(block)

    def _likely(self, block: NDArray[np.floating], lengths: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return a mask (Q, n) of the pairs that can be among the nearest, a superset of them."""
        scores = self.queries @ block.T.astype(np.float32, copy=False)
        # Vectors that are stored at length 1 need no division.
        if np.abs(lengths - 1).max(initial=0) > MARGIN / 10:
            scores /= np.where(lengths > 0, lengths, 1)
        # A row must beat the k-th cosine so far, less the margin for rounding.
        full = self.cosines.shape[1] == self.count
        least = self.cosines[:, -1] - MARGIN if full else np.full(len(scores), -np.inf, np.float32)
        hits: NDArray[np.bool_] = scores >= least[:, None]
        if np.count_nonzero(hits) > 4 * self.count * len(hits) and len(block) > self.count:
            # Too many candidates, as in the first block: queries with many keep those near their own k-th best here.
            crowded = np.flatnonzero(np.count_nonzero(hits, axis=1) > 2 * self.count)
            last = len(block) - self.count
            kth = np.partition(scores[crowded], last, axis=1)[:, last] - MARGIN
            hits[crowded] = scores[crowded] >= np.maximum(least[crowded], kth)[:, None]
        return hits

    def _merge(self, queries: NDArray[np.int64], indices: NDArray[np.int64], cosines: NDArray[np.float32]) -> None:
        """Merge new (query, row, cosine) triples into the results, and keep the best `count` of each query."""
        changed, numbers = np.unique(queries, return_inverse=True)
        width = self.places.shape[1]
        # The results so far compete with the new triples. `numbers`: the query of each entry, as an index of `changed`.
        numbers = np.concatenate([np.repeat(np.arange(len(changed)), width), numbers])
        indices = np.concatenate([self.places[changed].ravel(), indices])
        cosines = np.concatenate([self.cosines[changed].ravel(), cosines])
        # By query, then by falling cosine, then by row. The rank of an entry is its distance to its query's first one.
        order = np.lexsort((indices, -cosines, numbers))
        numbers = numbers[order]
        ranks = np.arange(len(numbers)) - np.searchsorted(numbers, numbers)
        best = order[ranks < self.count]
        if len(changed) == len(self.queries):  # as long as there are fewer rows than `count`, all of them
            self.places = indices[best].reshape(len(changed), -1)
            self.cosines = cosines[best].reshape(len(changed), -1)
        else:
            # Every query has `width` results, so the flat list is a rectangle.
            self.places[changed] = indices[best].reshape(-1, width)
            self.cosines[changed] = cosines[best].reshape(-1, width)


def pair_cosines(
    ones: NDArray[np.floating], first: NDArray[np.int64], others: NDArray[np.floating], second: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the cosines (P,) of row `first[p]` of unit vectors and row `second[p]` of vectors of any length.

    Each is summed alone, so that it does not depend on the other pairs.
    """
    cosines = np.empty(len(first), np.float32)
    for start in range(0, len(first), PAIRS):
        part = slice(start, start + PAIRS)
        cosines[part] = np.einsum("pd,pd->p", ones[first[part]], normalize_vectors(others[second[part]]))
    return cosines


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
