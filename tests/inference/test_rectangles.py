"""Rectangles: every token once and in its place, padding marked, never more tokens than asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import Example
from osbert.inference.onnx_backend import rectangles


def example(length: int, seed: int = 0) -> Example:
    rng = np.random.default_rng(seed)
    ids, segments = rng.integers(5, 99, length, dtype=np.int32), rng.integers(0, 2, length, dtype=np.int8)
    nothing = np.zeros(length, np.bool_)
    return Example(ids=ids, segments=segments, words=nothing, special=nothing)


@given(lengths=st.lists(st.integers(1, 40), max_size=30), tokens=st.integers(1, 100))
def test_each_example_stands_once_in_a_rectangle_of_few_tokens(lengths: list[int], tokens: int) -> None:
    examples = [example(length, seed) for seed, length in enumerate(lengths)]
    seen = []
    longest = 40
    for part in rectangles(examples, tokens=tokens):
        assert part.ids.size <= tokens or len(part.ids) == 1
        assert part.ids.shape[1] == max(part.lengths) <= longest
        longest = min(part.lengths)
        for row, (place, length) in enumerate(zip(part.indices, part.lengths)):
            seen.append(place)
            assert part.mask[row].tolist() == [1] * length + [0] * (part.mask.shape[1] - length)
            assert (part.ids[row][: len(examples[place])] == examples[place].ids).all()
            assert (part.segments[row][: len(examples[place])] == examples[place].segments).all()
    assert sorted(seen) == list(range(len(lengths)))


def test_what_a_mask_cannot_say_is_refused() -> None:
    looks_back = Example(
        ids=np.ones(3, np.int32), segments=np.zeros(3, np.int8), words=np.ones(3, np.bool_),
        special=np.zeros(3, np.bool_), order=np.arange(3),
    )  # fmt: skip
    with pytest.raises(ValueError, match="of their own"):
        list(rectangles([looks_back], tokens=8))
