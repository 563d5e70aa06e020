"""Reads many vectors a text of an .npz: all vectors one after the other, and where those of each text start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.data.multi_vectors import MultiVectors, spans
from osbert.errors import UserError
from osbert.inference.vectors.files import map_array
from osbert.inference.vectors.reading import ArrayReader

BLOCK = 2**15
"""Most vectors in a block, if a text has no more."""


def read_texts(path: Path, indices: Sequence[int]) -> Iterator[MultiVectors]:
    """Yield the vectors of each of these texts of a file, of which no other part is read."""
    vectors, starts, ids = (map_array(path, name) for name in ("vectors", "starts", "ids"))
    for index in indices:
        tokens = slice(starts[index], starts[index + 1])
        yield MultiVectors.of([np.array(vectors[tokens], np.float32)], [ids[tokens]])


def read_blocks(open_array: ArrayReader) -> Iterator[MultiVectors]:
    """Yield the vectors of a file in blocks of texts.

    Raises ValueError if the arrays contradict each other, and UserError if a number is NaN or infinite.
    """
    with open_array("starts") as (file, shape, dtype):
        starts: NDArray[np.int64] = np.frombuffer(file.read(), dtype).astype(np.int64)
    with open_array("vectors") as (vectors, (count, width), kind), open_array("ids") as (ids, (pieces,), id_kind):
        if shape != (len(starts),) or starts[0] != 0 or (np.diff(starts) < 1).any() or {count, pieces} != {starts[-1]}:
            raise ValueError("its offsets are damaged")
        for first, last in spans(starts, BLOCK):
            size = int(starts[last] - starts[first])
            block = np.frombuffer(vectors.read(size * width * kind.itemsize), kind).reshape(size, width)
            if not np.isfinite(block).all():
                raise UserError("A vector has infinite or undefined numbers. Embed again.", code="not-finite")
            block_ids: NDArray[np.integer] = np.frombuffer(ids.read(size * id_kind.itemsize), id_kind).astype(np.int64)
            block_starts = starts[first : last + 1] - starts[first]
            yield MultiVectors(block.astype(np.float32, copy=False), block_starts, block_ids)
