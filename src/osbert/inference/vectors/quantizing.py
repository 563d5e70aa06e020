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
from osbert.inference.vectors.recall import measure_recall, search_blocks

NumberType = Literal["float32", "int8", "binary"]
"""The types of numbers that files of vectors hold; binary: int8, and bits by which a search chooses candidates."""


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


def measure_small(exact: Column, quantized: Column, bits: Column | None = None) -> float | None:
    """Return recall@10 of quantized vectors against exact ones (n, D), with `bits` of a search by them; see recall.py.

    The queries are in float32, as those of a search are.
    """
    if len(exact.shape) != 2:
        return None
    find = search_blocks(quantized.blocks)
    if bits is not None:
        packed = np.concatenate([*bits.blocks()]) if exact.shape[0] else np.empty((0, 0), np.uint8)
        vectors = np.memmap(quantized.path, quantized.dtype, "r", shape=quantized.shape) if exact.shape[0] else packed
        find = BitIndex(packed, quantized.shape[1], vectors.__getitem__).find
    return measure_recall(exact.blocks, exact.shape[0], find)
