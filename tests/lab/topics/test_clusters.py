"""k-means and the silhouette: beside their definitions, computed plainly."""

from __future__ import annotations

import numpy as np
import pytest

from osbert_lab.topics import clusters


def blobs(count: int, *, spread: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors (300, 8) around `count` directions, and which each is of."""
    rng = np.random.default_rng(seed)
    centres, labels = np.eye(8)[:count], rng.integers(count, size=300)
    rows = centres[labels] + rng.normal(size=(300, 8)) * spread
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels


def test_lloyd_and_the_silhouette_are_what_their_definitions_say() -> None:
    vectors, _ = blobs(5, spread=0.4)
    own = first = vectors[[3, 50, 100, 150, 200]].astype(np.float64)
    for _ in range(100):
        distances = np.square(vectors[:, None] - own).sum(2)  # (n, K)
        labels = distances.argmin(1)
        own = np.stack([vectors[labels == one].mean(0) for one in range(5)])
    centres, inertia = clusters.lloyd(vectors, first.astype(np.float32))
    np.testing.assert_allclose(centres, own, atol=1e-5)
    assert inertia == pytest.approx(np.square(vectors - own[labels]).sum(), rel=1e-4)
    apart, values = 1 - vectors.astype(np.float64) @ vectors.T, []
    for row, label in enumerate(labels):
        means = [apart[row, labels == other].mean() for other in range(5) if other != label]
        inside = apart[row, labels == label].sum() / ((labels == label).sum() - 1)
        values.append((min(means) - inside) / max(min(means), inside))
    assert clusters.silhouette(vectors, labels) == pytest.approx(np.mean(values), abs=1e-5)


def test_clusters_that_are_there_are_found_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, labels = blobs(6)
    judged = clusters.score_counts(vectors)
    assert max(judged, key=lambda count: judged[count]) == 6
    monkeypatch.setattr(clusters, "LEARNT_FROM", 100)
    monkeypatch.setattr(clusters, "BLOCK", 64)
    found = np.concatenate([block for block, _ in clusters.assign_blocks(vectors, clusters.cluster(vectors, 6))])
    assert len({*zip(found.tolist(), labels.tolist(), strict=True)}) == 6
    np.testing.assert_array_equal(clusters.cluster(vectors, 6), clusters.cluster(vectors, 6))


def test_vectors_that_rounding_alone_sets_apart_are_one_cluster() -> None:
    rng = np.random.default_rng(0)
    vectors = np.tile(np.array([[0.6, 0.8, 0]], np.float32), (3000, 1))
    for noise in (np.zeros_like(vectors), rng.choice([0, 1e-7, 4e-7], size=vectors.shape).astype(np.float32)):
        centres = clusters.cluster(vectors + noise, 18)
        assert np.isfinite(centres).all() and centres.shape == (1, 3)
        assert set(clusters.score_counts(vectors + noise).values()) == {-1}
    vectors[1000:] = [0.6, 0, 0.8]
    assert len(clusters.cluster(vectors + noise, 18)) == 2 and clusters.score_counts(vectors + noise)[2] > 0.99
