"""Long texts: what fits is never touched, windows read every piece, and head and tail keep exactly what they should."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import Example
from osbert.data.long_texts import Long, cut_windows, head_and_tail, lay_out
from osbert.data.pack import Packer, PieceRun
from osbert.text.tokenizer import SPECIALS, Tokenizer

PIECES = 200
TOKENIZER = Tokenizer([*SPECIALS, *(f"w{number}" for number in range(PIECES))])


def run(n: int, first: int = 0) -> PieceRun:
    """Return n different pieces, so that each can be told from all others."""
    return PieceRun(np.arange(first, first + n, dtype=np.int32) + len(SPECIALS), np.ones(n, np.bool_))


def laid(lengths: Sequence[int], length: int, long: Long, overlap: int = 3) -> list[Example]:
    runs = [run(n, 100 * place) for place, n in enumerate(lengths)]
    return lay_out(runs, Packer(tokenizer=TOKENIZER, length=length), long=long, overlap=overlap, record=7)


texts = st.lists(st.integers(0, 90), min_size=1, max_size=2).filter(any)
sizes = st.integers(6, 40)


@given(lengths=texts, length=sizes, overlap=st.integers(0, 50))
def test_windows_read_every_piece_in_order_and_are_valid(lengths: list[int], length: int, overlap: int) -> None:
    examples = laid(lengths, length, "window", overlap)
    for segment, n in enumerate(lengths):
        own = [one.ids[(one.segments == segment) & ~one.special] for one in examples]
        assert set(np.concatenate(own).tolist()) == set(run(n, 100 * segment).ids.tolist())
        assert all((np.diff(ids) == 1).all() for ids in own)
        assert [ids.min(initial=0) for ids in own] == sorted(ids.min(initial=0) for ids in own)
    for one in examples:
        assert one.record == 7 and one.truncated == 0
        assert len(one) <= length and (len(one) == length or len(examples) == 1 or len(lengths) == 2)
        assert one.ids[0] == TOKENIZER.cls and one.ids[-1] == TOKENIZER.sep


@given(lengths=texts, length=sizes, overlap=st.integers(0, 50))
def test_neighbouring_windows_of_one_text_share_at_least_the_overlap(
    lengths: list[int], length: int, overlap: int
) -> None:
    examples = laid(lengths[:1], length, "window", overlap)
    shared = min(overlap, (length - 2) // 2)
    for before, after in itertools.pairwise(examples):
        assert len({*before.ids[1:-1].tolist()} & {*after.ids[1:-1].tolist()}) >= shared
    step = length - 2 - shared
    assert len(examples) == 1 + max(0, -(-(lengths[0] - (length - 2)) // step))


@given(n=st.integers(0, 90), size=st.integers(1, 40))
def test_head_and_tail_keep_exactly_the_two_ends(n: int, size: int) -> None:
    whole = run(n)
    kept = head_and_tail(whole, size).ids.tolist()
    if n <= size:
        assert kept == whole.ids.tolist()
        return
    head = max(1, size // 4)
    assert kept == [*whole.ids[:head].tolist(), *whole.ids[n - (size - head) :].tolist()]
    assert len(kept) == size


@given(lengths=texts, length=sizes)
def test_what_is_read_and_what_is_not_add_up(lengths: list[int], length: int) -> None:
    for long in ("truncate", "head+tail"):
        (one,) = laid(lengths, length, long)
        assert (~one.special).sum() + one.truncated == sum(lengths)
        assert len(one) == min(length, sum(lengths) + 1 + len(lengths))


@pytest.mark.parametrize("lengths", [[20], [12, 8], [0, 20], [20, 0]])
def test_what_fits_is_one_sequence_and_the_same_for_all(lengths: list[int]) -> None:
    (expected,) = laid(lengths, 23, "truncate")
    for long in ("head+tail", "window", "error"):
        (one,) = laid(lengths, 23, long)
        assert (one.ids == expected.ids).all() and (one.segments == expected.segments).all() and not one.truncated


def test_the_short_text_of_a_pair_is_in_every_window_whole() -> None:
    examples = laid([5, 80], 23, "window")
    short = run(5).ids.tolist()
    assert len(examples) == 7 and all(one.ids[1:6].tolist() == short for one in examples)


def test_two_long_texts_go_side_by_side_from_first_to_last() -> None:
    parts = cut_windows([run(30), run(14, 100)], [10, 10], 2)
    begins = [(int(a.ids[0]) - 5, int(b.ids[0]) - 105) for a, b in parts]
    assert begins == [(0, 0), (8, 0), (16, 4), (20, 4)]
