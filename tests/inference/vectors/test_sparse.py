"""Search in sparse vectors: what a plain comparison of all finds, however the rows are cut into blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from osbert.inference.vectors.sparse import NearestSparseRows, divide_scores
from refusals import refusal

WIDTH = 6
VOCABULARY = list("abcde")  # one fewer than the weights of a vector


def random_rows(count: int, seed: int) -> csr_array:
    """Return vectors with few weights, which are halves, so that sums are exact and equal ones occur."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, (count, WIDTH)) / 2 * (rng.random((count, WIDTH)) < 0.4)
    return csr_array(weights.astype(np.float32))


@given(st.integers(0, 30), st.integers(0, 4), st.integers(1, 8), st.integers(1, 12), st.integers(0, 99))
def test_all_that_is_best_is_found(rows: int, queries: int, count: int, size: int, seed: int) -> None:
    matrix, asked = random_rows(rows, seed), random_rows(queries, seed + 100)
    blocks = [matrix[first : first + size] for first in range(0, rows, size)]
    nearest = NearestSparseRows(asked, count)
    for block in blocks:
        nearest.compare(block)
    products = asked.toarray() @ matrix.toarray().T
    for (indices, scores), expected in zip(nearest.ranked, products, strict=True):
        order = [index for index in np.argsort(-expected, kind="stable")[:count] if expected[index] > 0]
        assert indices.tolist() == order and scores.tolist() == expected[order].tolist()
    chosen = [indices.tolist() for indices, _ in nearest.ranked]
    for query, fractions in enumerate(divide_scores(asked, chosen, blocks, VOCABULARY)):
        assert list(fractions) == chosen[query]
        for index, pieces in fractions.items():
            common = (asked[[query]].toarray() * matrix[[index]].toarray())[0]
            named = {"abcde"[piece] if piece < 5 else "[5]": common[piece] for piece in np.flatnonzero(common)}
            assert pieces == pytest.approx({piece: weight / common.sum() for piece, weight in named.items()})
            assert list(pieces.values()) == sorted(pieces.values(), reverse=True)


def test_vectors_of_another_vocabulary_are_refused() -> None:
    nearest = NearestSparseRows(random_rows(1, 0), 3)
    with refusal("damaged-file"):
        nearest.compare(csr_array((2, WIDTH + 1)))


def test_given_indices_break_ties() -> None:
    nearest = NearestSparseRows(csr_array(np.ones((1, 2))), 2)
    nearest.compare(csr_array(np.ones((3, 2))), np.array([7, 5, 6]))
    ((indices, _),) = nearest.ranked
    assert indices.tolist() == [5, 6]
