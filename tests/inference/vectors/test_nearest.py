"""The nearest rows are those of a comparison in float64, however long the vectors are."""

from __future__ import annotations

import numpy as np
import pytest

from osbert.inference.vectors.nearest import NearestRows
from osbert.inference.vectors.settings import normalize_vectors
from refusals import refusal


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-20, 1e20, 1e30, 1e36])
@pytest.mark.parametrize("every", [1, 3])
def test_vectors_whose_squares_leave_float32_have_their_cosines(scale: float, every: int) -> None:
    rng = np.random.default_rng(0)
    vectors, queries = (rng.normal(size=(count, 32)).astype(np.float32) for count in (300, 4))
    vectors[::every] *= np.float32(scale)
    queries[1:] *= np.float32(scale)
    vectors[5] = 0
    units = [
        rows / np.maximum(np.linalg.norm(rows.astype(np.float64), axis=1), 1e-300)[:, None]
        for rows in (vectors, queries)
    ]
    cosines = units[1] @ units[0].T
    nearest = NearestRows(queries, 10)
    nearest.compare(vectors[:100])
    nearest.compare(vectors[100:])
    np.testing.assert_array_equal(nearest.places, np.argsort(-cosines, axis=1, kind="stable")[:, :10])
    np.testing.assert_allclose(nearest.cosines, -np.sort(-cosines, axis=1)[:, :10], atol=1e-5)
    # Vectors of the usual lengths do not change by a bit because others lie in the same block.
    usual = (np.arange(300) % every != 0) & (np.arange(300) != 5)
    np.testing.assert_array_equal(normalize_vectors(vectors)[usual], normalize_vectors(vectors[usual]))


def test_vectors_with_infinite_or_undefined_numbers_are_refused() -> None:
    for number in (np.inf, np.nan):
        with refusal("not-finite", "Vector 1 "):
            NearestRows(np.ones((1, 2)), 1).compare(np.array([[1, 1e-30], [number, 1]], np.float32))
