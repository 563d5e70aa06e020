"""k-means clustering, and the choice of the number of clusters by the silhouette, or by the number of vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
BLOCK = 2**13
"""Rows that are compared with the centres in one product."""
STEPS, STARTS = 100, 3
"""Most steps of Lloyd's algorithm, and the number of starts, of which the best is kept."""
LEARNT_FROM = 2**16
"""Most rows for which centres are fitted; of more rows a sample is taken."""
JUDGED = 1000
"""Most rows in the sample for the silhouette, whose memory is quadratic."""
ALIKE = 2e-6
"""Squared distance of unit vectors below which they may be those of equal texts, which differ by their batches."""
TRIED = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 21, 25, 30)
"""Candidates for the number of clusters."""
CLEAR = 0.25
"""Lowest silhouette at which it decides the number of clusters: below it they run into each other."""


def cluster(vectors: Vectors, count: int, *, seed: int = 0) -> Vectors:
    """Return `count` centres (K, D) of unit vectors (n, D) by k-means: Lloyd's algorithm after k-means++.

    The best of several starts is kept, by the sum of squared distances. There are fewer centres if the vectors are
    alike: of those that rounding alone sets apart, one is kept. Of more than 65,536 vectors only a sample is read into
    memory.
    """
    rng = np.random.default_rng(seed)
    sample = draw_sample(vectors, LEARNT_FROM, rng)
    solutions = [lloyd(sample, first_centres(sample, count, rng)) for _ in range(STARTS)]
    centres = min(solutions, key=lambda solution: solution[1])[0]
    exact = centres.astype(np.float64)
    squares = np.square(exact).sum(axis=1)
    alike = squares[:, None] + squares - 2 * exact @ exact.T < ALIKE
    return centres[~np.triu(alike, 1).any(axis=0)]


def draw_sample(vectors: Vectors, most: int, rng: np.random.Generator) -> Vectors:
    """Return the vectors, or a random sample of `most` of them, in their order."""
    if len(vectors) <= most:
        return np.asarray(vectors)
    return vectors[np.sort(rng.choice(len(vectors), most, replace=False))]


def first_centres(vectors: Vectors, count: int, rng: np.random.Generator) -> Vectors:
    """Return `count` of the vectors, sampled one by one by the squared distance to those chosen before (k-means++).

    Arthur & Vassilvitskii 2007, section 2.2. If all other vectors equal chosen ones, the next is sampled uniformly.
    """
    chosen = [int(rng.integers(len(vectors)))]
    squares = np.einsum("nd,nd->n", vectors, vectors)
    nearest = np.full(len(vectors), np.inf)
    while len(chosen) < count:
        # |v - c|^2 = |v|^2 - 2 v.c + |c|^2; rounding can make it slightly negative.
        last = vectors[chosen[-1]]
        nearest = np.minimum(nearest, np.maximum(squares - 2 * (vectors @ last) + last @ last, 0))
        nearest[chosen[-1]] = 0
        total = nearest.sum()
        weights = nearest / total if total > 0 else np.full(len(vectors), 1 / len(vectors))
        chosen.append(int(rng.choice(len(vectors), p=weights)))
    return vectors[chosen]


def lloyd(vectors: Vectors, centres: Vectors, *, steps: int = STEPS) -> tuple[Vectors, float]:
    """Return the centres at the end of Lloyd's algorithm, and the sum of squared distances to them.

    An empty cluster's centre moves to the vector that is farthest from its own centre.
    """
    labels = np.full(len(vectors), -1)
    for _ in range(steps):
        before, labels, distances = labels, *_assign(vectors, centres)
        if (labels == before).all():
            break
        # The sums of the clusters' vectors as one product with the one-hot labels.
        members = (labels[:, None] == np.arange(len(centres))).astype(np.float32)  # (n, K)
        sizes = members.sum(axis=0)
        centres = (members.T @ vectors) / np.maximum(sizes, 1)[:, None]
        empty = np.flatnonzero(sizes == 0)
        centres[empty] = vectors[np.argsort(-distances, kind="stable")[: len(empty)]]
    return centres, float(_assign(vectors, centres)[1].sum())


def _assign(vectors: Vectors, centres: Vectors) -> tuple[NDArray[np.int64], Vectors]:
    """Return each vector's nearest centre and the squared distance to it, (n,) each."""
    parts = list(assign_blocks(vectors, centres))
    return np.concatenate([labels for labels, _ in parts]), np.concatenate([other for _, other in parts])


def assign_blocks(vectors: Vectors, centres: Vectors) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
    """Yield the nearest centres (the first of equal ones) and the squared distances to them, block by block."""
    halves = np.einsum("kd,kd->k", centres, centres) / 2
    for first in range(0, len(vectors), BLOCK):
        block = np.asarray(vectors[first : first + BLOCK])
        # argmax of v.c - |c|^2 / 2 is argmin of |v - c|^2, as |v|^2 is the same for all centres.
        scores = block @ centres.T - halves
        labels = scores.argmax(axis=1)
        squares = np.einsum("nd,nd->n", block, block)
        yield labels, np.maximum(squares - 2 * np.take_along_axis(scores, labels[:, None], axis=1)[:, 0], 0)


def silhouette(vectors: Vectors, labels: NDArray[np.int64]) -> float:
    """Return the mean silhouette (Rousseeuw 1987, section 2) of unit vectors (n, D), by the distance 1 - cosine.

    A vector that is alone in its cluster counts 0. Needs memory for n^2 numbers, and at least two clusters.

    >>> silhouette(np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32), np.array([0, 0, 1, 1]))
    1.0
    """
    names, labels = np.unique(labels, return_inverse=True)
    members = (labels[:, None] == np.arange(len(names))).astype(np.float32)  # (n, K)
    sizes = members.sum(axis=0)
    sums = (1 - vectors @ vectors.T) @ members  # (n, K): distances to all members of a cluster
    rows = np.arange(len(vectors))
    cluster_sizes = sizes[labels]
    # a(i): the mean distance to the other members of the own cluster; the distance to itself is 0.
    inside = sums[rows, labels] / np.maximum(cluster_sizes - 1, 1)
    # b(i): the lowest mean distance to another cluster; then s(i) = (b - a) / max(a, b).
    means = sums / sizes
    means[rows, labels] = np.inf
    outside = means.min(axis=1)
    values = np.where(cluster_sizes > 1, (outside - inside) / np.maximum(np.maximum(inside, outside), 1e-12), 0)
    return float(values.mean())


def score_counts(
    vectors: Vectors, *, seed: int = 0, watch: Callable[[int, int], None] = lambda done, count: None
) -> dict[int, float]:
    """Return the silhouette of a sample for each number of clusters in TRIED that is below the sample's size.

    `watch` is called with the count of numbers tried and their total.
    """
    sample = draw_sample(vectors, JUDGED, np.random.default_rng(seed))
    tried = [count for count in TRIED if count < len(sample)]
    silhouettes = {}
    for done, count in enumerate(tried, 1):
        labels, _ = _assign(sample, cluster(sample, count, seed=seed))
        silhouettes[count] = silhouette(sample, labels) if len(np.unique(labels)) > 1 else -1.0
        watch(done, len(tried))
    return silhouettes


def choose_count(silhouettes: Mapping[int, float], rows: int) -> int:
    """Return a number of clusters for `rows` vectors, given the silhouette of each candidate.

    It is the candidate with the largest silhouette if that is at least CLEAR. Otherwise the curve is nearly flat, and
    its maximum is mostly at 2: then sqrt(rows) / 3, from 2 to 30, so that clusters of more texts are finer.

    >>> choose_count({2: 0.4, 3: 0.6, 4: 0.5}, 3000), choose_count({2: 0.10, 3: 0.09}, 3000)
    (3, 18)
    """
    best = max(silhouettes, key=lambda count: (silhouettes[count], -count))
    if silhouettes[best] >= CLEAR:
        return best
    return min(max(round(rows**0.5 / 3), 2), TRIED[-1])
