"""Vectors as the nearest of some centroids and what is left, of which each number takes 2 or 4 bits (ColBERTv2).

Santhanam et al. 2022, section 3.3. The centroids are fitted by k-means to a sample of the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osbert.data.multi_vectors import CELLS

ROUNDS = 4
"""Rounds of k-means."""


def fit_centroids(sample: NDArray[np.float32], count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return `count` centroids (K, D) of a sample (S, D), S at least K: those of k-means after some rounds.

    >>> sample = np.array([[0, 1], [0, 3], [9, 0], [7, 0]], np.float32)
    >>> sorted(fit_centroids(sample, 2, np.random.default_rng(0)).tolist())
    [[0.0, 2.0], [8.0, 0.0]]
    """
    centroids = sample[np.sort(rng.choice(len(sample), count, replace=False))]
    for _ in range(ROUNDS):
        nearest = nearest_centroids(sample, centroids)
        order = np.argsort(nearest, kind="stable")
        numbers, firsts, sizes = np.unique(nearest[order], return_index=True, return_counts=True)
        centroids[numbers] = np.add.reduceat(sample[order], firsts, axis=0) / sizes[:, None]  # an empty one stays
    return centroids


def nearest_centroids(vectors: NDArray[np.float32], centroids: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the number of the centroid (K, D) nearest to each vector (N, D), by their Euclidean distance."""
    halves = np.einsum("kd,kd->k", centroids, centroids) / 2
    nearest = np.empty(len(vectors), np.int32)
    rows = max(1, CELLS // len(centroids))
    for first in range(0, len(vectors), rows):
        # |v - c|^2 = |v|^2 - 2 (v c - |c|^2 / 2): the largest difference is the nearest.
        nearest[first : first + rows] = (vectors[first : first + rows] @ centroids.T - halves).argmax(axis=1)
    return nearest


@dataclass(frozen=True, eq=False)
class ResidualCodec:
    """`centroids` (K, D), and the values `levels` (2, 4 or 16,) that stand for a number of a residual.

    >>> codec = ResidualCodec.fit(np.array([[0.1, -0.1], [1.1, 0.9]], np.float32), np.eye(2, dtype=np.float32), bits=2)
    >>> codes, residuals = codec.encode(np.array([[1.1, 0.1]], np.float32))
    >>> codes.tolist(), residuals.shape, bool(abs(codec.decode(codes, residuals) - [1.1, 0.1]).max() < 0.2)
    ([0], (1, 1), True)
    """

    centroids: NDArray[np.float32]
    levels: NDArray[np.float32]

    @classmethod
    def fit(cls, sample: NDArray[np.float32], centroids: NDArray[np.float32], *, bits: int) -> ResidualCodec:
        """Return the codec with levels in the middle of as many quantiles of the residuals of a sample (S, D)."""
        residuals = sample - centroids[nearest_centroids(sample, centroids)]
        middles = (np.arange(2**bits) + 0.5) / 2**bits
        return cls(centroids, np.quantile(residuals, middles).astype(np.float32))

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return int(np.log2(len(self.levels)))

    def encode(self, vectors: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the centroids (N,) of vectors (N, D), and their residuals (N, bytes)."""
        codes = nearest_centroids(vectors, self.centroids)
        # The nearest level is that between whose middles to the next ones a number lies.
        levels = np.searchsorted((self.levels[1:] + self.levels[:-1]) / 2, vectors - self.centroids[codes])
        each = 8 // self.bits
        padded = np.pad(levels.astype(np.uint8), ((0, 0), (0, -levels.shape[1] % each)))
        shifts = np.arange(each, dtype=np.uint8) * self.bits
        return codes, np.bitwise_or.reduce(padded.reshape(len(vectors), -1, each) << shifts, axis=2)

    def decode(self, codes: NDArray[np.integer], residuals: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the vectors (N, D) of such centroids and residuals, nearly those that were encoded."""
        each = 8 // self.bits
        levels = np.arange(256)[:, None] >> np.arange(each) * self.bits & len(self.levels) - 1
        numbers = self.levels[levels][residuals].reshape(len(codes), -1)
        decoded: NDArray[np.float32] = self.centroids[codes] + numbers[:, : self.centroids.shape[1]]
        return decoded
