"""Small vectors: int8, with the directions of float32 but for rounding, and their bits; and how many neighbours remain.

Each vector has a scale of its own, by which its largest number becomes 127 or -127. The scale is not kept: vectors are
compared by their cosines, which do not depend on it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.inference.vectors.bits import BitIndex, pack_bits
from osbert.inference.vectors.files import BITS, ROW_CHECKSUMS, Column
from osbert.inference.vectors.nearest import NearestRows

NumberType = Literal["float32", "int8", "binary"]
"""The types of numbers that files of vectors hold; binary: int8, and bits by which a search chooses candidates."""
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
    return _write_column(vectors, path, "|i1", vectors.shape, quantize)


def add_bits(quantized: Column, folder: Path) -> dict[str, Column]:
    """Write the bits of a column of int8 vectors (n, D), and the checksum of each, into `folder`. Raises OSError.

    Bits are of the int8 vectors, so that they are those of a file whose float32 vectors are gone, too.
    """
    count, width = quantized.shape

    def checksums(block: NDArray[Any]) -> NDArray[np.uint32]:
        return np.array([zlib.crc32(row) for row in block], "<u4")

    return {
        BITS: _write_column(quantized, folder / f"{BITS}.bin", "|u1", (count, -(-width // 8)), pack_bits),
        ROW_CHECKSUMS: _write_column(quantized, folder / f"{ROW_CHECKSUMS}.bin", "<u4", (count,), checksums),
    }


def _write_column(
    source: Column, path: Path, dtype: str, shape: tuple[int, ...], convert: Callable[[NDArray[Any]], NDArray[Any]]
) -> Column:
    with path.open("wb") as file:
        for block in source.blocks():
            file.write(convert(block).tobytes())
    return Column(path=path, dtype=dtype, shape=shape)


def measure_recall(exact: Column, quantized: Column, bits: Column | None = None) -> float | None:
    """Return the fraction of the 10 nearest vectors (n, D) that quantized ones have among their 10 nearest, too.

    The queries are up to QUERIES of the vectors themselves, evenly spaced, in float32 as queries of a search are; a
    vector is not its own neighbour. With `bits`, quantized vectors are searched by them. None if there are fewer than
    two vectors.
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
    first_indices = _nearest(exact, queries)
    if bits is None:
        second_indices = _nearest(quantized, queries)
    else:
        packed = np.concatenate([*bits.blocks()])
        vectors = np.memmap(quantized.path, quantized.dtype, "r", shape=quantized.shape)
        index = BitIndex(packed, quantized.shape[1], vectors.__getitem__)
        second_indices = [indices.tolist() for indices, _ in index.find(queries, NEAREST + 1)]
    neighbours = [
        [[index for index in line if index != row][:NEAREST] for row, line in zip(rows, indices, strict=True)]
        for indices in (first_indices, second_indices)
    ]
    hits = sum(len({*first} & {*second}) for first, second in zip(*neighbours, strict=True))
    return hits / sum(map(len, neighbours[0]))


def _nearest(column: Column, queries: NDArray[np.floating]) -> list[list[int]]:
    """Return the indices of the nearest vectors of a column for each query, of which it may be one."""
    nearest = NearestRows(queries, min(NEAREST + 1, column.shape[0]))
    for block in column.blocks():
        nearest.compare(block.astype(np.float32, copy=False))
    indices: list[list[int]] = nearest.places.tolist()
    return indices
