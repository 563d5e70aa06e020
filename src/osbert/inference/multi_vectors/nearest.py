"""Exact search in many vectors a text, block by block, and which tokens of a text matched those of a query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.data.multi_vectors import MultiVectors, maxsim
from osbert.inference.vectors.nearest import RankedRows, require_width
from osbert.inference.vectors.sparse import name_piece


class NearestMultiRows(RankedRows):
    """The rows with the largest MaxSim for each of Q queries, among the blocks compared so far.

    >>> queries = MultiVectors.of([np.array([[1, 0], [0, 1]], np.float32)], [[1, 2]])
    >>> nearest = NearestMultiRows(queries, count=1)
    >>> nearest.compare(MultiVectors.of([np.eye(2, dtype=np.float32), np.ones((1, 2), np.float32) / 2], [[1, 2], [3]]))
    >>> [(indices.tolist(), scores.tolist()) for indices, scores in nearest.ranked]
    [([0], [2.0])]
    """

    def __init__(self, queries: MultiVectors, count: int) -> None:
        super().__init__(len(queries), count)
        self.queries = queries

    def compare(self, block: MultiVectors, indices: NDArray[np.int64] | None = None) -> None:
        """Compare the next rows. Raises UserError if their vectors have another width."""
        require_width(self.queries.vectors.shape[1:], block.vectors.shape[1:])
        numbers = np.arange(self.rows, self.rows + len(block)) if indices is None else indices
        for query, scores in enumerate(maxsim(self.queries, block)):
            self.merge(query, numbers, scores)
        self.rows += len(block)


def name_matches(query: MultiVectors, text: MultiVectors, vocabulary: Sequence[str]) -> dict[str, float]:
    """Return what each match of a token of one query adds to its score with one text, as a fraction, largest first.

    A token of a query matches the token of the text with the largest product. Equal matches are added up.

    >>> query = MultiVectors.of([np.array([[2, 0], [0, 1]], np.float32)], [[0, 1]])
    >>> text = MultiVectors.of([np.array([[0, 2], [3, 0]], np.float32)], [[2, 0]])
    >>> name_matches(query, text, ["film", "good", "great"])
    {'film': 0.75, 'good > great': 0.25}
    """
    products = query.vectors @ text.vectors.T  # (tokens of the query, tokens of the text)
    largest = products.max(axis=1)
    total = float(largest.sum(dtype=np.float64)) or 1.0
    matches: dict[str, float] = {}
    for query_piece, text_piece, product in zip(
        query.ids.tolist(), text.ids[products.argmax(axis=1)].tolist(), largest.tolist()
    ):
        name = " > ".join(dict.fromkeys(name_piece(piece, vocabulary).strip() for piece in (query_piece, text_piece)))
        matches[name] = matches.get(name, 0.0) + product / total
    return dict(sorted(matches.items(), key=lambda match: -match[1]))
