"""Steps made ahead: the same steps in the same order, one at a time, errors and all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.step import Cursor, RankPart, Step, ahead


def numbered(made: list[int], *, last: int | None = None) -> Iterator[Step]:
    for number in itertools.count() if last is None else range(last):
        made.append(number)
        yield Step(batches=[], cursor=Cursor(index=number))


def test_steps_come_in_order_and_at_most_one_is_waiting() -> None:
    made: list[int] = []
    with closing(ahead(numbered(made))) as stream:
        for number in range(20):
            assert next(stream).cursor.index == number
            assert len(made) <= number + 2


def test_a_stream_that_ends_ends() -> None:
    assert [step.cursor.index for step in ahead(numbered([], last=3))] == [0, 1, 2]


def test_an_error_comes_after_the_steps_before_it() -> None:
    def failing() -> Iterator[Step]:
        yield from numbered([], last=2)
        raise ValueError("a damaged shard")

    stream = ahead(failing())
    assert [next(stream).cursor.index, next(stream).cursor.index] == [0, 1]
    with pytest.raises(ValueError, match="a damaged shard"):
        next(stream)


def test_closing_ends_the_thread() -> None:
    with closing(ahead(numbered([]))) as stream:
        next(stream)
        assert any(thread.name.startswith("loader") for thread in threading.enumerate())
    assert not any(thread.name.startswith("loader") for thread in threading.enumerate())


@given(st.lists(st.integers(1, 512), max_size=70), st.integers(1, 9))
def test_parts_share_a_step_evenly_and_leave_nothing_out(lengths: list[int], size: int) -> None:
    parts = [RankPart(rank, size).of(np.array(lengths, np.int64)).tolist() for rank in range(size)]
    assert sorted(place for part in parts for place in part) == list(range(len(lengths)))
    assert all([lengths[place] for place in part] == sorted((lengths[k] for k in part), reverse=True) for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    tokens = [sum(lengths[place] for place in part) for part in parts]
    assert max(tokens) - min(tokens) <= max(lengths, default=0)
    assert not lengths or parts[0]


def test_one_process_takes_every_step_whole_longest_first_and_equals_in_their_order() -> None:
    assert RankPart().of(np.array([3, 1, 2, 5, 2])).tolist() == [3, 0, 2, 4, 1]
