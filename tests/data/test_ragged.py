"""Rows of uneven lengths end to end, against plain lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import begins, ranges, rows

PARTS = st.lists(st.tuples(st.integers(-5, 50), st.integers(0, 6)), max_size=9)


@given(parts=PARTS)
def test_rows_lie_end_to_end(parts: list[tuple[int, int]]) -> None:
    starts, counts = np.array(parts, np.int64).reshape(-1, 2).T
    things = [(row, number) for row, count in enumerate(counts.tolist()) for number in range(count)]
    assert ranges(starts, counts).tolist() == [int(starts[row]) + number for row, number in things]
    row, number = rows(counts)
    assert list(zip(row.tolist(), number.tolist())) == things
    assert begins(counts).tolist() == [sum(counts[:row].tolist()) for row in range(len(counts))]
