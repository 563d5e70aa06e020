"""Sparse vectors of texts (SPLADE), weights of word pieces: reading, exact search, and the pieces that texts share.

A search makes an inverted index of each block: a list of the texts with each piece, and their weights. The dot
products with a query add up the lists of its pieces, so that texts without any of them cost nothing. Functions import
scipy's sparse matrices late, which takes a tenth of a second, since searches in other vectors need none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.vectors.nearest import RankedRows, require_width
from osbert.inference.vectors.reading import ArrayReader

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Fractions = dict[str, float]
"""What parts of a query and a text, such as a common piece, add to their score, as fractions of it, by their names."""


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
    from scipy.sparse import vstack

    return vstack(blocks, format="csr")


def divide_scores(
    queries: csr_array, chosen: Sequence[Iterable[int]], blocks: Iterable[csr_array], vocabulary: Sequence[str]
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


def read_blocks(open_array: ArrayReader, rows: int) -> Iterator[csr_array]:
    """Yield the vectors (n, V) of a file in blocks of at most `rows` rows.

    Raises ValueError if the arrays contradict each other, and UserError if a weight is NaN or infinite.
    """
    from scipy.sparse import csr_array

    with open_array("indptr") as (file, shape, dtype):
        indptr = np.frombuffer(file.read(), dtype)
    with open_array("shape") as (file, _, dtype):
        count, width = np.frombuffer(file.read(), dtype).tolist()
    with open_array("data") as (data, total, data_type), open_array("indices") as (indices, _, index_type):
        if shape != (count + 1,) or indptr[0] != 0 or (np.diff(indptr) < 0).any() or total != (indptr[-1],):
            raise ValueError("its offsets are damaged")
        for first in range(0, count, rows):
            ends = indptr[first : first + rows + 1] - indptr[first]
            size = int(ends[-1])
            weights = np.frombuffer(data.read(size * data_type.itemsize), data_type)
            pieces = np.frombuffer(indices.read(size * index_type.itemsize), index_type)
            if not np.isfinite(weights).all():
                raise UserError("A sparse vector has infinite or undefined weights. Embed again.", code="not-finite")
            block = csr_array((weights, pieces, ends), shape=(len(ends) - 1, width))
            block.check_format(full_check=True)  # products do not check that pieces are within the vocabulary
            yield block


def name_pieces(vector: Any, vocabulary: Sequence[str]) -> list[tuple[str, Any]]:
    """Return the pieces of a sparse vector (V,) with their weights, the largest first.

    >>> [(piece, weight.item()) for piece, weight in name_pieces(np.array([0, 0.5, 2]), ["the", "film", "films"])]
    [('films', 2.0), ('film', 0.5)]
    """
    from scipy.sparse import coo_array

    vector = coo_array(vector)
    pieces = vector.col
    order = np.lexsort((pieces, -vector.data))
    names = [name_piece(piece, vocabulary) for piece in pieces[order].tolist()]
    return list(zip(names, vector.data[order], strict=True))


def name_piece(piece: int, vocabulary: Sequence[str]) -> str:
    """Return the name of a piece; models can have more of them than their tokenizer, which are named by number."""
    return vocabulary[piece] if piece < len(vocabulary) else f"[{piece}]"
