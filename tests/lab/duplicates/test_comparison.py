"""Near duplicates: equal to a plain comparison of all, however the rows are cut into blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert_lab.duplicates.comparison import Duplicates


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def plain(vectors: np.ndarray, least: float) -> list[int]:
    """Return the place of the row that stands for each row, one after the other."""
    kept: list[int] = []
    found = []
    for place, row in enumerate(vectors):
        cosines = [float(vectors[other] @ row) for other in kept]
        best = int(np.argmax(cosines)) if kept else 0
        if kept and cosines[best] >= least:
            found.append(kept[best])
        else:
            kept.append(place)
            found.append(place)
    return found


@given(seed=st.integers(0, 10**6), count=st.integers(1, 60), block=st.integers(1, 20), least=st.floats(0.2, 0.95))
@settings(max_examples=40, deadline=None)
def test_it_is_the_plain_rule_for_any_blocks(seed: int, count: int, block: int, least: float) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(1 + count // 5, 6))[rng.integers(1 + count // 5, size=count)])
    vectors = unit(vectors + rng.normal(size=vectors.shape) * 0.2)
    found = Duplicates(vectors, least, block=block)
    found.find()
    assert found.kept.tolist() == plain(vectors, least)
    np.testing.assert_allclose(found.cosines, np.einsum("nd,nd->n", vectors, vectors[found.kept]), atol=1e-5)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_equal_rows_repeat_the_first_even_at_one(block: int) -> None:
    vectors = unit(np.tile(np.random.default_rng(1).normal(size=(3, 50)), (10, 1)))
    done = []
    found = Duplicates(vectors, 1.0, block=block)
    found.find(lambda *pair: done.append(pair))
    assert found.kept.tolist() == [0, 1, 2] * 10
    assert done[-1][0] == done[-1][1]
