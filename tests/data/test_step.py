"""Steps made ahead: the same steps in the same order, one at a time, errors and all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from osbert.data.step import Cursor, Step, ahead


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
