"""MaxSim: equal to its definition, whatever the blocks; ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data import multi_vectors
from osbert.data.multi_vectors import MultiVectors, maxsim
from osbert.inference.multi_vectors.nearest import NearestMultiRows
from refusals import refusal


def draw(rng: np.random.Generator, lengths: list[int], width: int = 4) -> MultiVectors:
    rows = [rng.integers(-3, 4, (length, width)).astype(np.float32) for length in lengths]
    return MultiVectors.of(rows, [rng.integers(0, 9, length) for length in lengths])


LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@given(LENGTHS, LENGTHS, st.integers(1, 40), st.integers(1, 4), st.integers(0, 99))
def test_the_nearest_are_those_of_the_definition(
    queries: list[int], texts: list[int], cells: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = draw(rng, queries), draw(rng, texts)
    expected = np.array([[(query @ text.T).max(axis=1).sum() for text in theirs] for query in ours])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multi_vectors, "CELLS", cells)
        np.testing.assert_array_equal(maxsim(ours, theirs), expected)
        means = expected / np.array(queries)[:, None]
        np.testing.assert_allclose(maxsim(ours, theirs, mean=True), means, rtol=1e-6)
    nearest = NearestMultiRows(ours, count)
    for first in range(0, len(texts), 2):
        nearest.compare(theirs[first : first + 2])
    for row, (indices, scores) in zip(expected, nearest.ranked, strict=True):
        order = np.lexsort((np.arange(len(row)), -row))[:count]
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(scores, row[order])


def test_vectors_of_another_width_are_refused() -> None:
    rng = np.random.default_rng(0)
    with refusal("damaged-file"):
        NearestMultiRows(draw(rng, [2]), 1).compare(draw(rng, [1], width=5))
