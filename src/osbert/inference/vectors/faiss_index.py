"""Approximate search with faiss (extra `faiss`): the index is built once and kept beside the file of vectors."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.files import read_sealed, replacing, write_sealed
from osbert.inference.embedder import normalize_vectors
from osbert.inference.vectors.files import CHECKSUM, file_crc32
from osbert.inference.vectors.nearest import require_width
from osbert.inference.vectors.reading import VectorFile
from osbert.inference.vectors.unit import finite_lengths

LISTS_LOOKED_AT = 32
"""Inverted lists that a search compares (nprobe). An index of n vectors has about sqrt(n) lists."""
LEARNT_FROM, POINTS = 2**16, 39
"""Most vectors for fitting the centres of the lists, and the fewest for each list: faiss warns below that."""


def faiss_library() -> Any:
    """Return the faiss module. Raises UserError if it is not installed."""
    try:
        import faiss
    except ImportError as error:
        raise UserError('--backend faiss needs faiss: pip install "osbert[faiss]"', code="missing-library") from error
    return faiss


def index_path(vectors: Path) -> Path:
    """Return the path of the index of a file of vectors."""
    return vectors.with_name(f"{vectors.name}.faiss")


def open_index(opened: VectorFile) -> Any:
    """Return the index of a file of vectors: inverted lists of the normalised vectors, not quantised (IVF, Flat).

    It is built if it is missing, damaged, or belongs to other vectors. Raises UserError if a vector is not finite.
    """
    faiss, path = faiss_library(), index_path(opened.path)
    fingerprint = hashlib.sha256(json.dumps(dict(opened.settings), sort_keys=True).encode()).hexdigest()
    facts = path.with_name(f"{path.name}.json")
    try:
        known = read_sealed(facts)
    except (OSError, ValueError, UserError):
        known = {}
    if known.get("vectors") == fingerprint and known.get("rows") == opened.count and path.is_file():
        with contextlib.suppress(RuntimeError):  # of another version's file
            if known.get(CHECKSUM) == file_crc32(path):
                return faiss.read_index(str(path))
    index = build_index(opened)
    with replacing(path) as aside:
        faiss.write_index(index, str(aside))
        checksum = file_crc32(aside)
    write_sealed(facts, {"vectors": fingerprint, "rows": opened.count, CHECKSUM: checksum})
    return index


def build_index(opened: VectorFile) -> Any:
    """Return a new index of the file's vectors. The centres of its lists are fitted on every k-th vector."""
    faiss, count = faiss_library(), opened.count
    stride = -(-count // LEARNT_FROM)
    sample = np.concatenate([_normalize_block(opened, block)[::stride] for block in opened.blocks()])
    # sqrt(n) lists balance the search for the nearest centres and the search within their lists.
    lists = max(1, min(math.isqrt(count), len(sample) // POINTS))
    index = faiss.index_factory(sample.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(sample)
    for block in opened.blocks():
        index.add(normalize_vectors(block))
    return index


def _normalize_block(opened: VectorFile, block: NDArray[np.float32]) -> NDArray[np.float32]:
    opened.require_single(block)
    finite_lengths(block, 0)
    return normalize_vectors(block)


def nearest_in_index(
    index: Any, queries: NDArray[np.floating], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return row indices and cosines (Q, k) as `NearestRows` does, approximately. Index -1: no further row was found.

    Raises UserError for queries of another width, or with NaN or infinite numbers.
    """
    require_width(queries, (index.d,))
    finite_lengths(queries, 0)
    index.nprobe = LISTS_LOOKED_AT
    cosines, indices = index.search(normalize_vectors(queries), min(count, index.ntotal))
    order = np.lexsort((indices, -cosines))  # of equals the earlier first
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(cosines, order, axis=1)
