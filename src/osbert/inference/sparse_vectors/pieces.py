"""The word pieces of sparse vectors by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def name_pieces(vector: Any, vocabulary: Sequence[str]) -> list[tuple[str, Any]]:
    """Return the pieces of a sparse vector (V,) with their weights, the largest first.

    >>> [(piece, weight.item()) for piece, weight in name_pieces(np.array([0, 0.5, 2]), ["the", "film", "films"])]
    [('films', 2.0), ('film', 0.5)]
    """
    from scipy.sparse import coo_array  # late: files of dense vectors need none of it

    vector = coo_array(vector)
    pieces = vector.col
    order = np.lexsort((pieces, -vector.data))
    names = [name_piece(piece, vocabulary) for piece in pieces[order].tolist()]
    return list(zip(names, vector.data[order], strict=True))


def name_piece(piece: int, vocabulary: Sequence[str]) -> str:
    """Return the name of a piece; models can have more of them than their tokenizer, which are named by number."""
    return vocabulary[piece] if piece < len(vocabulary) else f"[{piece}]"
