"""Rankings of rows, and the nearest ones in a file of dense vectors, exactly, block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.vectors.settings import LONG, SHORT, exact_lengths, normalize_vectors


class RankedRows:
    """Rankings of at most `count` rows for each of some queries, the best first; of equal ones the lower index.

    `ranked`: the indices and scores of each query; `rows`: how many rows were compared.
    """

    def __init__(self, queries: int, count: int) -> None:
        self.count = count
        self.rows = 0
        self.ranked = [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in range(queries)]

    def merge(self, query: int, indices: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Add rows with their scores (n,) to the ranking of a query."""
        if len(scores) > self.count:
            hits = scores >= np.partition(scores, -self.count)[-self.count]
            indices, scores = indices[hits], scores[hits]
        earlier_indices, earlier_scores = self.ranked[query]
        indices, scores = np.concatenate([earlier_indices, indices]), np.concatenate([earlier_scores, scores])
        best = np.lexsort((indices, -scores))[: self.count]
        self.ranked[query] = indices[best], scores[best]


def require_width(queries: tuple[int, ...], vectors: tuple[int, ...]) -> None:
    """Raise UserError unless the vectors of queries have the shape (D,) of a file's vectors."""
    if queries != vectors:
        raise UserError(
            f"The file's vectors are {vectors}, that of the text is {queries}: is it damaged, or of another model?",
            code="damaged-file",
        )


def finite_lengths(block: NDArray[np.floating], first: int) -> NDArray[np.floating]:
    """Return the lengths (n,) of vectors (n, D).

    Raises UserError with the number of the first vector that is not finite; `first` is the number of the first row.
    """
    lengths = exact_lengths(block, np.sqrt(np.einsum("nd,nd->n", block, block))[:, None])[:, 0]
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

    def _likely(self, block: NDArray[np.floating], lengths: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return a mask (Q, n) of the pairs that can be among the nearest, a superset of them."""
        if lengths.min() < SHORT or lengths.max() > LONG:  # float32 may not hold the products
            block, lengths = normalize_vectors(block), np.ones_like(lengths)
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
