"""The rows with the largest scores for each query, among those that were added so far."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError


class RankedRows:
    """Rankings of at most `count` rows for each of some queries, the best first; of equal ones the lower index.

    `ranked`: the indices and scores of each query; `rows`: how many rows were compared.
    """

    def __init__(self, queries: int, count: int) -> None:
        """Begin with empty rankings."""
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
