"""Approximate search by an index of faiss (inverted lists) or usearch (HNSW), built once and kept beside the file.

What an index misses is measured when it is built, and kept with it.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.files import read_sealed, replacing, write_sealed
from osbert.inference.vectors.files import CHECKSUM, file_crc32
from osbert.inference.vectors.nearest import finite_lengths, require_width
from osbert.inference.vectors.reading import VectorFile
from osbert.inference.vectors.recall import measure_recall
from osbert.inference.vectors.settings import normalize_vectors

LIBRARIES = {"faiss": "faiss", "usearch": "usearch.index"}
"""The modules of the backends."""
LISTS_LOOKED_AT = 32
"""Inverted lists that a search of faiss compares (nprobe). An index of n vectors has about sqrt(n) lists."""
LEARNT_FROM, POINTS = 2**16, 39
"""Most vectors for fitting the centres of the lists, and the fewest for each list: faiss warns below that."""
EXPANSION = 128
"""Candidates of usearch while it builds and searches its graph (ef of Malkov and Yashunin 2018, algorithms 1 and 5)."""


@dataclass(frozen=True, kw_only=True)
class ApproximateIndex:
    """An index of the vectors of a file at length 1. `backend`: its library; `recall`: recall@10."""

    backend: str
    index: Any
    recall: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the vectors, (n, D)."""
        return (self.index.ntotal, self.index.d) if self.backend == "faiss" else (len(self.index), self.index.ndim)

    def find(
        self, queries: NDArray[np.floating], count: int
    ) -> Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Return row indices and cosines (k,) for each query, as `NearestRows`, approximately.

        Raises UserError for queries of another width, or with NaN or infinite numbers.
        """
        rows, width = self.shape
        require_width(queries.shape[1:], (width,))
        finite_lengths(queries, 0)
        unit, count = normalize_vectors(queries), min(count, rows)
        if self.backend == "faiss":
            self.index.nprobe = LISTS_LOOKED_AT
            cosines, indices = self.index.search(unit, count)  # an index of -1 where there is no further row
        else:
            self.index.expansion_search = max(EXPANSION, count)
            matches = self.index.search(unit, count)
            shape = len(unit), -1  # of a single query the matches have one dimension
            indices = matches.keys.reshape(shape).astype(np.int64)
            cosines = 1 - matches.distances.reshape(shape)
        ranked = []
        for row, scores in zip(indices, cosines, strict=True):
            order = np.lexsort((row, -scores))  # of equals the earlier first
            order = order[row[order] >= 0]
            ranked.append((row[order], scores[order]))
        return ranked


def load_library(backend: str) -> Any:
    """Return the module of a backend. Raises UserError if it is not installed."""
    try:
        return importlib.import_module(LIBRARIES[backend])
    except ImportError as error:
        raise UserError(
            f'--backend {backend} needs {backend}: pip install "osbert[{backend}]" ({error})', code="missing-library"
        ) from error


def index_path(vectors: Path, backend: str) -> Path:
    """Return the path of the index of a file of vectors."""
    return vectors.with_name(f"{vectors.name}.{backend}")


def open_index(opened: VectorFile, backend: str) -> ApproximateIndex:
    """Return the index of a file of vectors.

    It is built if it is missing, damaged, or belongs to other vectors. Raises UserError if a vector is not finite.
    """
    library, path = load_library(backend), index_path(opened.path, backend)
    facts = path.with_name(f"{path.name}.json")
    try:
        known = read_sealed(facts)
    except (OSError, ValueError, UserError):
        known = {}
    if known.get("vectors") == opened.fingerprint and known.get("rows") == opened.count and path.is_file():
        with contextlib.suppress(RuntimeError):  # of another version's file
            if known.get(CHECKSUM) == file_crc32(path):
                read = library.read_index if backend == "faiss" else library.Index.restore
                return ApproximateIndex(backend=backend, index=read(str(path)), recall=known.get("recall"))
    built = (build_lists if backend == "faiss" else build_graph)(opened)
    index = ApproximateIndex(backend=backend, index=built)
    recall = measure_recall(opened.blocks, opened.count, index.find)
    with replacing(path) as aside:
        library.write_index(built, str(aside)) if backend == "faiss" else built.save(str(aside))
        checksum = file_crc32(aside)
    write_sealed(facts, {"vectors": opened.fingerprint, "rows": opened.count, CHECKSUM: checksum, "recall": recall})
    return replace(index, recall=recall)


def build_lists(opened: VectorFile) -> Any:
    """Return a new index of faiss, not quantised (IVF, Flat): the centres are fitted on every k-th vector."""
    faiss, count = load_library("faiss"), opened.count
    stride = -(-count // LEARNT_FROM)
    sample = np.concatenate([_normalize_block(opened, block)[::stride] for block in opened.blocks()])
    # sqrt(n) lists balance the search for the nearest centres and the search within their lists.
    lists = max(1, min(math.isqrt(count), len(sample) // POINTS))
    index = faiss.index_factory(sample.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = min(POINTS, len(sample))  # of fewer, faiss prints a warning
    index.train(sample)
    for block in opened.blocks():
        index.add(normalize_vectors(block))
    return index


def build_graph(opened: VectorFile) -> Any:
    """Return a new index of usearch, a graph of float32 vectors (HNSW)."""
    library, index, rows = load_library("usearch"), None, 0
    for block in opened.blocks():
        unit = _normalize_block(opened, block)
        if index is None:
            index = library.Index(ndim=unit.shape[1], metric="cos", dtype="f32", expansion_add=EXPANSION)
        index.add(np.arange(rows, rows + len(unit)), unit)
        rows += len(unit)
    return index


def _normalize_block(opened: VectorFile, block: NDArray[np.float32]) -> NDArray[np.float32]:
    opened.require_single(block)
    finite_lengths(block, 0)
    return normalize_vectors(block)
