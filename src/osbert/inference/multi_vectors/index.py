"""An index of many vectors a text in the manner of PLAID: centroids choose candidates, residuals rank them.

Each of a query's tokens probes its nearest centroids, and the texts with a vector near one of them are candidates
(Santhanam et al. 2022b, section 4). The best by these centroids alone are compared exactly, by the vectors that
centroids and residuals give back. The index is a file beside that of the vectors, built once, and mapped into memory.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert import __version__
from osbert.data.multi_vectors import MultiVectors, maxsim, rows_of
from osbert.files import replacing
from osbert.guarded import parse_json
from osbert.inference.multi_vectors.nearest import NearestMultiRows, read_blocks
from osbert.inference.multi_vectors.residuals import ResidualCodec, fit_centroids
from osbert.inference.vectors.files import SETTINGS, Column, VectorOutput, map_array, write_vectors
from osbert.inference.vectors.nearest import RankedRows, require_width
from osbert.inference.vectors.reading import VectorFile
from osbert.inference.vectors.recall import NEAREST, choose_rows, compare_neighbours
from osbert.inference.vectors.settings import normalize_vectors

RESIDUAL_BITS = {"plaid": 4, "plaid-2bit": 2}
"""Bits of a number of a residual, by the name of the search."""
CENTROIDS = 16
"""Centroids of N vectors: this many times the square root of N, as a power of 2."""
PER_CENTROID, SAMPLED = 16, 2**18
"""Vectors for fitting the centroids: so many for each, and at most so many."""
PROBES = 32
"""Centroids that a token of a query probes."""
CANDIDATES, CANDIDATES_PER_RESULT = 100, 10
"""Fewest texts whose vectors are compared for a query, and those for each result."""
QUERIES, QUERY_TOKENS = 64, 32
"""For the recall: texts that look for their neighbours, and the tokens of each that do."""


class ResidualIndex:
    """The index of a file of vectors. `find` returns what `NearestMultiRows` does, approximately."""

    def __init__(self, path: Path, *, normalized: bool) -> None:
        """Map an index that `build_index` wrote; `normalized`: whether vectors have length 1. Raises ValueError."""
        read = {name: map_array(path, name) for name in ("centroids", "levels", "codes", "residuals", "starts")}
        self.codec = ResidualCodec(np.array(read["centroids"]), np.array(read["levels"]))
        self.codes, self.residuals, self.starts = read["codes"], read["residuals"], np.array(read["starts"])
        self.normalized = normalized
        # The texts with a vector near each centroid, each once.
        texts = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        pairs = np.unique(self.codes.astype(np.int64) * len(self.starts) + texts)
        self.texts = (pairs % len(self.starts)).astype(np.int32)
        self.lists = np.searchsorted(pairs // len(self.starts), np.arange(len(self.codec.centroids) + 1))

    def find(self, queries: MultiVectors, count: int) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Return the indices and scores (k,) of the best `count` texts for each query."""
        require_width(queries.vectors.shape[1:], self.codec.centroids.shape[1:])
        ranked = RankedRows(len(queries), count)
        for number in range(len(queries)):
            query = queries[number : number + 1]
            indices = self._candidates(query.vectors, max(CANDIDATES, CANDIDATES_PER_RESULT * count))
            ranked.merge(number, indices, maxsim(query, self._decode(indices))[0])
        return ranked.ranked

    def _candidates(self, tokens: NDArray[np.float32], most: int) -> NDArray[np.int64]:
        """Return the sorted indices of at most `most` texts: the best by the centroids that tokens (t, D) probe."""
        scores = tokens @ self.codec.centroids.T  # (t, K)
        probes = min(PROBES, scores.shape[1])
        probed = np.argpartition(scores, scores.shape[1] - probes, axis=1)[:, -probes:]
        probed_scores = np.take_along_axis(scores, probed, axis=1)
        order = np.argsort(probed_scores, axis=1)
        probed = np.take_along_axis(probed, order, axis=1)
        probed_scores = np.take_along_axis(probed_scores, order, axis=1)
        texts = np.unique(np.concatenate([self._near(centroid) for centroid in np.unique(probed)]))
        if len(texts) <= most:
            return texts.astype(np.int64)
        # A text without a vector near a probed centroid scores at most what the farthest of these does.
        similarities = np.repeat(probed_scores[:, 0][None], len(texts), axis=0)  # (texts, t)
        for token, (centroids, values) in enumerate(zip(probed.tolist(), probed_scores, strict=True)):
            lists = [self._near(centroid) for centroid in centroids]
            # In rising order, so that of the centroids near a text the best is assigned last.
            rows = np.searchsorted(texts, np.concatenate(lists))
            similarities[rows, token] = np.repeat(values, [len(near) for near in lists])
        totals = similarities.sum(axis=1)
        return np.sort(texts[np.argpartition(totals, -most)[-most:]]).astype(np.int64)

    def _near(self, centroid: int) -> NDArray[np.int32]:
        return self.texts[self.lists[centroid] : self.lists[centroid + 1]]

    def _decode(self, indices: NDArray[np.int64]) -> MultiVectors:
        """Return the vectors of these texts, nearly as they were."""
        rows, starts = rows_of(self.starts, indices)
        vectors = self.codec.decode(self.codes[rows], self.residuals[rows])
        vectors = normalize_vectors(vectors) if self.normalized else vectors
        return MultiVectors(vectors, starts, np.zeros(len(rows), np.int64))


def open_residual_index(opened: VectorFile, backend: str, watch: Callable[[str], None]) -> ResidualIndex:
    """Return the index of a file, built if it is missing, damaged or of other vectors.

    `watch` is called with a sentence on a new one.
    """
    path = opened.path.with_name(f"{opened.path.name}.{backend}")
    normalized = bool(opened.settings["vectors"]["normalize"])
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        settings = parse_json(map_array(path, SETTINGS).item())
        if damaged is None and settings.get("vectors") == opened.fingerprint:
            return ResidualIndex(path, normalized=normalized)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass
    build_index(opened, path, RESIDUAL_BITS[backend], {"vectors": opened.fingerprint, "osbert": __version__})
    index = ResidualIndex(path, normalized=normalized)
    recall = measure_recall(opened, index)
    measured = "" if recall is None else f" recall@10 against exact, of some of the texts as queries: {recall:.4f}."
    fraction = path.stat().st_size / opened.path.stat().st_size
    watch(f"{path}: {len(index.codec.centroids):,} centroids, {fraction:.0%} of the bytes of the vectors.{measured}")
    return index


def build_index(opened: VectorFile, path: Path, bits: int, settings: dict[str, str]) -> None:
    """Write the index of a file of vectors. Memory holds a sample of these, a block, and a few bytes for each.

    Raises UserError if a number is NaN or infinite, OSError on a full disk.
    """
    starts = opened.column("starts")
    total = int(starts[-1])
    count = 2 ** round(math.log2(CENTROIDS * math.sqrt(total)))
    stride = -(-total // min(SAMPLED, PER_CENTROID * count))
    parts, rows = [], 0  # every `stride`-th vector of the file
    for block in opened.blocks(read_blocks):
        parts.append(block.vectors[-rows % stride :: stride])
        rows += len(block.vectors)
    sample = np.concatenate(parts)
    centroids = fit_centroids(sample, min(count, max(1, len(sample) // 4)), np.random.default_rng(0))
    codec = ResidualCodec.fit(sample, centroids, bits=bits)
    with replacing(path) as aside:
        codes_path, residuals_path = aside.parent / "codes.bin", aside.parent / "residuals.bin"
        with codes_path.open("wb") as codes_file, residuals_path.open("wb") as residuals_file:
            for block in opened.blocks(read_blocks):
                codes, residuals = codec.encode(block.vectors)
                codes.tofile(codes_file)
                residuals.tofile(residuals_file)
        columns = {
            "codes": Column(path=codes_path, dtype="<i4", shape=(total,)),
            "residuals": Column(path=residuals_path, dtype="|u1", shape=(total, residuals.shape[1])),
        }
        for name, array in (("centroids", codec.centroids), ("levels", codec.levels), ("starts", starts)):
            array.tofile(aside.parent / f"{name}.bin")
            columns[name] = Column(path=aside.parent / f"{name}.bin", dtype=array.dtype.str, shape=array.shape)
        write_vectors(VectorOutput(form=".npz", path=aside), columns, settings)


def measure_recall(opened: VectorFile, index: ResidualIndex) -> float | None:
    """Return the fraction of the 10 nearest texts that the index finds, too; None if there are fewer than two texts.

    The queries are the first tokens of some of the texts, evenly spaced, none of which is its own neighbour.
    """
    if opened.count < 2:
        return None
    rows = choose_rows(opened.count, QUERIES)
    texts, first = [], 0
    for block in opened.blocks(read_blocks):
        texts += [block[int(row) - first][:QUERY_TOKENS] for row in rows if first <= row < first + len(block)]
        first += len(block)
    queries = MultiVectors.of(texts, [np.zeros(len(text)) for text in texts])
    exact = NearestMultiRows(queries, NEAREST + 1)
    for block in opened.blocks(read_blocks):
        exact.compare(block)
    return compare_neighbours(rows, exact.ranked, index.find(queries, NEAREST + 1))
