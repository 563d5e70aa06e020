"""Search by single bits: bits choose candidates, whose vectors alone are read and compared by cosine.

A bit is the sign of a number (1: above 0), so that the bits of a vector take 1/32 of the bytes of float32. They stay in
memory, and the vectors that decide the order stay on the disk. Candidates are chosen twice: by the Hamming distance of
bits, which is fast; and of these, by the product of the query's own numbers and the signs, which loses less.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.vectors.files import BITS, ROW_CHECKSUMS
from osbert.inference.vectors.nearest import finite_lengths, pair_cosines, require_width
from osbert.inference.vectors.reading import VectorFile
from osbert.inference.vectors.settings import normalize_vectors

CANDIDATES, CANDIDATES_PER_RESULT = 100, 10
"""Fewest vectors that are read for a query, and those for each result."""
NEAR = 10
"""Rows near by their Hamming distance for each candidate."""
WORD = 8
"""Bytes that are compared at once."""


def pack_bits(vectors: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the signs of vectors (..., D) as bits (..., D / 8 rounded up), the first number in the highest bit.

    >>> pack_bits(np.array([[0.5, -0.25, 0.1]])).tolist()
    [[160]]
    """
    return np.packbits(vectors > 0, axis=-1)


class BitIndex:
    """The bits of n vectors in memory, and `read`, which returns the vectors (k, D) at indices (k,).

    >>> vectors = np.array([[3.0, 1.0], [-1.0, 2.0], [2.0, -2.0]])
    >>> index = BitIndex(pack_bits(vectors), 2, lambda indices: vectors[indices])
    >>> [(rows, cosines)] = index.find(np.array([[1.0, 0.0]]), 2)
    >>> rows.tolist(), [f"{cosine:.3f}" for cosine in cosines]
    ([0, 2], ['0.949', '0.707'])
    """

    def __init__(self, bits: NDArray[np.uint8], width: int, read: Callable[[NDArray[np.int64]], NDArray[Any]]) -> None:
        """Take the bits (n, D / 8) of vectors of `width` D."""
        self.width = width
        self.read = read
        self._words = _words(bits)

    def find(
        self, queries: NDArray[np.floating], count: int
    ) -> Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Return the indices and cosines (k,) of the best `count` candidates for each query (Q, D), as `NearestRows`.

        Raises UserError if a query has another width, or a query or a candidate is not finite.
        """
        require_width(queries.shape[1:], (self.width,))
        finite_lengths(queries, 0)
        unit = normalize_vectors(queries)
        results = []
        for query, words in zip(unit, _words(pack_bits(unit)).T, strict=True):
            indices = self._candidates(query, words, max(CANDIDATES, CANDIDATES_PER_RESULT * count))
            vectors = self.read(indices).astype(np.float32, copy=False)
            finite_lengths(vectors, 0)
            cosines = pair_cosines(query[None], np.zeros_like(indices), vectors, np.arange(len(indices)))
            best = np.lexsort((indices, -cosines))[:count]
            results.append((indices[best], cosines[best]))
        return results

    def _candidates(self, query: NDArray[np.float32], words: NDArray[np.uint64], most: int) -> NDArray[np.int64]:
        """Return the sorted indices of `most` rows, or of all if there are fewer."""
        distances = np.zeros(self._words.shape[1], np.uint32)
        for row, word in zip(self._words, words, strict=True):
            distances += _count_bits(row ^ word)
        near = _lowest(distances, NEAR * most)
        bits = np.ascontiguousarray(self._words[:, near].T).view(np.uint8)
        signs = np.unpackbits(bits, axis=1, count=self.width).astype(np.float32) * 2 - 1
        return near[_lowest(-(signs @ query), most)]


def _lowest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the sorted indices of the `count` lowest values; of equal ones the first."""
    if len(values) <= count:
        return np.arange(len(values))
    likely = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return np.sort(likely[np.argsort(values[likely], kind="stable")[:count]])


def open_bit_index(opened: VectorFile) -> BitIndex:
    """Return the index of a file of `osbert embed --dtype binary`. Raises UserError for another or a damaged one."""
    if not opened.is_binary:
        raise UserError(
            f"{opened.path} has no bits: embed with --dtype binary, or remove --backend binary.", code="wrong-format"
        )
    bits, checksums, vectors = opened.column(BITS), opened.column(ROW_CHECKSUMS), opened.mapped_vectors()
    damaged = UserError(f"{opened.path} is damaged: its content has changed. Embed again.", code="damaged-file")
    if vectors.ndim != 2 or {len(bits), len(checksums), len(vectors)} != {opened.count}:
        raise damaged

    def read(indices: NDArray[np.int64]) -> NDArray[Any]:
        rows = vectors[indices]
        if [zlib.crc32(row) for row in rows] != checksums[indices].tolist():
            raise damaged
        return rows

    return BitIndex(bits, vectors.shape[1], read)


def _words(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return bits (n, B) as words (B / 8 rounded up, n): the same word of all rows is contiguous."""
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % WORD)))
    return np.ascontiguousarray(padded.view(np.uint64).T)


def _count_bits(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return how many bits of each word are 1."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words)
    ones = np.unpackbits(words.view(np.uint8).reshape(-1, WORD), axis=1)  # numpy 1
    return ones.sum(axis=1, dtype=np.uint8)
