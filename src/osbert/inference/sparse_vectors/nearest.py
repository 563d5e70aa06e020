"""Exact search in sparse vectors by an inverted index, block by block, and the pieces by which a text was found.

The index of a block has a list of the texts with each piece, and their weights. The dot products with a query add up
the lists of its pieces, so that texts without any of them cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from osbert.inference.sparse_vectors.pieces import name_piece
from osbert.inference.vectors.ranked import RankedRows, require_width

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Fractions = dict[str, float]
"""What each piece that a query and a text have in common adds to their score, as a fraction of it."""


class NearestSparseRows(RankedRows):
    """The rows with the largest dot products for each of Q sparse vectors, among the blocks compared so far.

    A row that has no piece of a query is not among them.

    >>> from scipy.sparse import csr_array
    >>> nearest = NearestSparseRows(csr_array(np.array([[0, 2.0, 1.0]])), count=2)
    >>> nearest.compare(csr_array(np.array([[1.0, 0, 0], [0, 0.5, 0], [3.0, 0.5, 1.0]])))
    >>> [(indices.tolist(), scores.tolist()) for indices, scores in nearest.ranked]
    [([2, 1], [2.0, 1.0])]
    """

    def __init__(self, queries: csr_array, count: int) -> None:
        """Prepare for queries (Q, V)."""
        super().__init__(queries.shape[0], count)
        self.queries = queries.astype(np.float64)

    def compare(self, block: csr_array, indices: NDArray[np.int64] | None = None) -> None:
        """Compare the next rows (n, V). Raises UserError if they have another V.

        `indices` (n,): what stands for them in `ranked`, by default the number of each among all rows.
        """
        require_width(self.queries.shape[1:], block.shape[1:])
        numbers = np.arange(self.rows, self.rows + block.shape[0]) if indices is None else indices
        index = block.T.tocsr()  # (V, n): the inverted index
        products = (self.queries @ index).astype(np.float32)  # (Q, n)
        for query, (start, end) in enumerate(zip(products.indptr[:-1], products.indptr[1:])):
            if start < end:
                self.merge(query, numbers[products.indices[start:end]], products.data[start:end])
        self.rows += block.shape[0]


def stack_rows(blocks: Sequence[csr_array]) -> csr_array:
    """Return blocks (n, V) as one matrix."""
    from scipy.sparse import vstack  # late: searches in dense vectors need none of it

    return vstack(blocks, format="csr")


def divide_scores(
    queries: csr_array,
    chosen: Sequence[Iterable[int]],
    blocks: Iterable[csr_array],
    vocabulary: Sequence[str],
) -> list[Mapping[int, Fractions]]:
    """Return for each query, by the indices of its `chosen` rows, what each common piece adds, the largest first.

    >>> from scipy.sparse import csr_array
    >>> rows = csr_array(np.array([[1.0, 0, 0], [3.0, 0.5, 1.0]]))
    >>> divide_scores(csr_array(np.array([[0, 2.0, 1.0]])), [[1]], [rows], ["a", "film", "films"])
    [{1: {'film': 0.5, 'films': 0.5}}]
    """
    queries_of_row: dict[int, list[int]] = {}
    for query, indices in enumerate(chosen):
        for index in indices:
            queries_of_row.setdefault(index, []).append(query)
    fractions: list[dict[int, Fractions]] = [{} for _ in chosen]
    for index, row in _select(blocks, sorted(queries_of_row)):
        for query in queries_of_row[index]:
            common = queries[[query]].multiply(row).tocsr()
            order = np.lexsort((common.indices, -common.data))
            total = float(common.data.sum(dtype=np.float64))
            fractions[query][index] = {
                name_piece(piece, vocabulary): weight / total
                for piece, weight in zip(common.indices[order].tolist(), common.data[order].tolist(), strict=True)
            }
    return [{index: row_fractions[index] for index in indices} for row_fractions, indices in zip(fractions, chosen)]


def _select(blocks: Iterable[csr_array], indices: Sequence[int]) -> Iterator[tuple[int, csr_array]]:
    """Yield the rows (1, V) at these ascending indices."""
    first, remaining = 0, list(reversed(indices))
    for block in blocks:
        while remaining and remaining[-1] < first + block.shape[0]:
            index = remaining.pop()
            yield index, block[[index - first]]
        first += block.shape[0]
