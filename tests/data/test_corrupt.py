"""Corruption: how many positions, which ones, and the mix that stands there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.corrupt import choose, mixed, quota
from osbert.text.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("tokens", "rate", "limit", "expected"),
    [
        (128, 0.15, 0, 19),
        (128, 0.15, 20, 19),
        (512, 0.15, 80, 77),
        (128, 0.3, 20, 20),
        (3, 0.15, 0, 1),
        (20, 0.15, 0, 3),
    ],
)
def test_quota_is_the_share_of_all_tokens_at_least_one(tokens: int, rate: float, limit: int, expected: int) -> None:
    assert quota(tokens, rate=rate, limit=limit) == expected


@given(special=st.lists(st.booleans(), min_size=1, max_size=50), count=st.integers(0, 60), seed=st.integers(0, 99))
def test_chosen_positions_are_distinct_ascending_and_never_special(special: list[bool], count: int, seed: int) -> None:
    index = choose(np.array(special), count, np.random.default_rng(seed))
    assert index.tolist() == sorted(set(index.tolist()))
    assert len(index) == min(count, special.count(False))
    assert not np.array(special)[index].any()


def test_every_position_is_as_likely_as_any_other() -> None:
    special = np.zeros(20, dtype=bool)
    special[[0, 9, 19]] = True
    rng, tries = np.random.default_rng(0), 4000
    hits = np.bincount(np.concatenate([choose(special, 4, rng) for _ in range(tries)]), minlength=20)
    share = 4 / 17
    assert not hits[special].any()
    assert np.abs(hits[~special] / tries - share).max() < 4.5 * np.sqrt(share * (1 - share) / tries)


@pytest.mark.parametrize(
    ("mask", "random"), [(0.8, 0.1), (1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.8), (0.0, 1.0), (0.0, 0.0)]
)
def test_the_mixes_of_table_8(tokenizer: Tokenizer, mask: float, random: float) -> None:
    pieces = np.full(40_000, 17)
    shown = mixed(pieces, mask=mask, random=random, tokenizer=tokenizer, rng=np.random.default_rng(0))
    counts = {"mask": (shown == tokenizer.mask).sum(), "same": (shown == 17).sum()}
    counts["random"] = len(pieces) - counts["mask"] - counts["same"]
    for kind, share in (("mask", mask), ("random", random), ("same", max(0.0, 1 - mask - random))):
        # One random piece in 60,000 is the piece itself or [MASK].
        assert abs(counts[kind] / len(pieces) - share) <= 4.5 * np.sqrt(share * (1 - share) / len(pieces)) + 2e-4
    assert (pieces == 17).all()


def test_random_pieces_are_of_the_whole_vocabulary(tokenizer: Tokenizer) -> None:
    shown = mixed(np.zeros(200_000, int), mask=0, random=1, tokenizer=tokenizer, rng=np.random.default_rng(0))
    assert (shown.min(), shown.max() < len(tokenizer)) == (0, True)
    tenths = np.histogram(shown, bins=10, range=(0, len(tokenizer)))[0] / len(shown)
    assert np.abs(tenths - 0.1).max() < 4.5 * np.sqrt(0.09 / len(shown))
