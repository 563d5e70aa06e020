"""Vectors in a quarter of the bytes: int8, whose directions are those of float32 but for rounding, and what that costs.

Each vector has a scale of its own, by which its largest number becomes 127 or -127. The scale is not kept: vectors are
compared by their cosines, which do not depend on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osbert.inference.vectors.files import Column
from osbert.inference.vectors.nearest import NearestRows

NumberType = Literal["float32", "int8"]
"""The types of numbers that files of vectors hold."""
QUERIES = 200
"""Most vectors that look for their neighbours in `measure_recall`."""
NEAREST = 10
"""Neighbours of each that are compared."""


def quantize(vectors: NDArray[np.floating]) -> NDArray[np.int8]:
    """Return vectors (..., D) as int8, each by a scale of its own. Zero vectors stay zero.

    >>> quantize(np.array([[0.5, -0.25, 0.1], [0.0, 0.0, 0.0]])).tolist()
    [[127, -64, 25], [0, 0, 0]]
    """
    largest = np.abs(vectors).max(axis=-1, keepdims=True, initial=0)
    return np.rint(vectors / np.where(largest > 0, largest, 1) * 127).astype(np.int8)


def quantize_column(vectors: Column, path: Path) -> Column:
    """Write a column of float32 vectors to `path` as int8, and return that column. Raises OSError."""
    with path.open("wb") as file:
        for block in vectors.blocks():
            file.write(quantize(block).tobytes())
    return Column(path=path, dtype="|i1", shape=vectors.shape)


def measure_recall(exact: Column, quantized: Column) -> float | None:
    """Return the fraction of the 10 nearest vectors (n, D) that quantized ones have among their 10 nearest, too.

    The queries are up to QUERIES of the vectors themselves, evenly spaced, in float32 as queries of a search are; a
    vector is not its own neighbour. None if there are fewer than two vectors.
    """
    count = exact.shape[0]
    if count < 2 or len(exact.shape) != 2:
        return None
    rows = np.unique(np.linspace(0, count - 1, min(count, QUERIES)).astype(int))
    firsts = np.arange(0, count, 2**13)
    queries = np.concatenate(
        [
            block[rows[(rows >= first) & (rows < first + len(block))] - first]
            for first, block in zip(firsts, exact.blocks())
        ]
    )
    neighbours = []
    for column in (exact, quantized):
        nearest = NearestRows(queries, min(NEAREST + 1, count))
        for block in column.blocks():
            nearest.compare(block.astype(np.float32, copy=False))
        neighbours.append(
            [[index for index in line if index != row][:NEAREST] for row, line in zip(rows, nearest.places.tolist())]
        )
    hits = sum(len({*first} & {*second}) for first, second in zip(*neighbours, strict=True))
    return hits / sum(map(len, neighbours[0]))
