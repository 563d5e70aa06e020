"""Unit vectors in a memory-mapped file, for comparisons of all rows with all rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.vectors.reading import VectorFile


def unit_vectors(opened: VectorFile, folder: Path) -> NDArray[np.float32]:
    """Return the vectors of a file, scaled to length 1, as a memory map (n, D) in `folder`. Zero vectors stay zero.

    Raises UserError if a text has several vectors, or one is not finite; OSError on a full disk.
    """
    path, shape = folder / "unit.bin", (0, 0)
    with path.open("wb") as file:  # by appending: where the disk is full, writing to a map ends the process
        for block in opened.blocks():
            opened.require_single(block)
            lengths = finite_lengths(block, shape[0])
            (block / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32).tofile(file)
            shape = (shape[0] + len(block), block.shape[1])
    return np.memmap(path, np.float32, "r", shape=shape)


def finite_lengths(block: NDArray[np.floating], first: int) -> NDArray[np.float32]:
    """Return the lengths (n,) of vectors (n, D).

    Raises UserError with the number of the first vector that is not finite; `first` is the number of the first row.
    """
    lengths: NDArray[np.float32] = np.sqrt(np.einsum("nd,nd->n", block, block)).astype(np.float32, copy=False)
    if not np.isfinite(lengths).all():
        row = first + int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise UserError(
            f"Vector {row:,} (counted from 0) has infinite or undefined numbers. Make the vectors again.",
            code="not-finite",
        )
    return lengths
