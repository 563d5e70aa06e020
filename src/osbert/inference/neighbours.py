"""The rows of a file of vectors that are nearest to a vector, found exactly: every block is looked at."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.embedder import normalized


def nearest_rows(
    blocks: Iterable[NDArray[np.floating]], wanted: NDArray[np.floating], count: int
) -> list[tuple[int, float]]:
    """Return (place, cosine) of the `count` rows (D,) nearest to `wanted` (D,), nearest first; of equals the earlier.

    Memory is that of one block (n, D). Raises UserError when the rows have another width.
    """
    direction = normalized(wanted)
    places, scores = np.empty(0, np.int64), np.empty(0, np.float32)
    first = 0
    for block in blocks:
        if block.shape[1:] != wanted.shape:
            raise UserError(
                f"The file's vectors are {block.shape[1:]}, that of the text is {wanted.shape}: is it damaged?",
                code="damaged-file",
            )
        places = np.concatenate([places, np.arange(first, first + len(block))])
        # einsum sums each row by itself; the products of a BLAS round by where in the block a row stands.
        scores = np.concatenate([scores, np.einsum("nd,d->n", normalized(block), direction)])
        best = np.argsort(-scores, kind="stable")[:count]
        places, scores = places[best], scores[best]
        first += len(block)
    return list(zip(places.tolist(), scores.tolist()))
