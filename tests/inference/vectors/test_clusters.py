"""k-means and the silhouette, as scikit-learn computes them."""

from __future__ import annotations

import numpy as np
import pytest

from osbert.inference.vectors import clusters


def blobs(count: int, *, spread: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors (300, 8) around `count` directions, and which each is of."""
    rng = np.random.default_rng(seed)
    centres, labels = np.eye(8)[:count], rng.integers(count, size=300)
    rows = centres[labels] + rng.normal(size=(300, 8)) * spread
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels


def test_lloyd_and_the_silhouette_are_those_of_scikit_learn() -> None:
    cluster, metrics = pytest.importorskip("sklearn.cluster"), pytest.importorskip("sklearn.metrics")
    vectors, _ = blobs(5, spread=0.4)
    first = vectors[[3, 50, 100, 150, 200]]
    centres, inertia = clusters.lloyd(vectors, first)
    theirs = cluster.KMeans(5, init=first, n_init=1, algorithm="lloyd", tol=0, max_iter=100).fit(vectors)
    np.testing.assert_allclose(centres, theirs.cluster_centers_, atol=1e-5)
    assert inertia == pytest.approx(theirs.inertia_, rel=1e-4)
    assert clusters.silhouette(vectors, theirs.labels_) == pytest.approx(
        metrics.silhouette_score(vectors, theirs.labels_, metric="cosine"), abs=1e-5
    )


def test_clusters_that_are_there_are_found_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, labels = blobs(6)
    judged = clusters.judged_counts(vectors)
    assert max(judged, key=lambda count: judged[count]) == 6
    monkeypatch.setattr(clusters, "LEARNT_FROM", 100)
    monkeypatch.setattr(clusters, "BLOCK", 64)
    found = np.concatenate([block for block, _ in clusters.assigned_blocks(vectors, clusters.cluster(vectors, 6))])
    assert len({*zip(found.tolist(), labels.tolist(), strict=True)}) == 6
    np.testing.assert_array_equal(clusters.cluster(vectors, 6), clusters.cluster(vectors, 6))


def test_vectors_that_are_all_alike_have_clusters_too() -> None:
    vectors = np.tile(np.array([[1, 0]], np.float32), (9, 1))
    centres = clusters.cluster(vectors, 3)
    assert np.isfinite(centres).all() and centres.shape == (3, 2)
    assert clusters.judged_counts(vectors)[2] == -1
