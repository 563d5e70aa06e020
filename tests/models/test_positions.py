"""Rotary positions: only distances count, and the turn is the published one."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.models.positions import rotate, rotation


@settings(deadline=None)
@given(first=st.integers(0, 400), second=st.integers(0, 400), shift=st.integers(0, 100), seed=st.integers(0, 99))
def test_only_the_distance_matters(first: int, second: int, shift: int, seed: int) -> None:
    query, key = torch.randn(2, 1, 3, 8, generator=torch.Generator().manual_seed(seed))

    def product(q: int, k: int) -> torch.Tensor:
        turned = rotate(query, rotation(torch.tensor([q]), 8)), rotate(key, rotation(torch.tensor([k]), 8))
        return (turned[0] * turned[1]).sum(dim=-1)

    torch.testing.assert_close(product(first, second), product(first + shift, second + shift), rtol=1e-4, atol=1e-4)


def test_each_pair_turns_by_its_own_angle() -> None:
    heads = torch.tensor([[[1.0, 0.0, 0.0, 2.0]]])
    turned = rotate(heads, rotation(torch.tensor([3]), 4))
    slow = 3 / 10000**0.5
    expected = torch.tensor([[[math.cos(3), math.sin(3), -2 * math.sin(slow), 2 * math.cos(slow)]]])
    torch.testing.assert_close(turned, expected)


def test_the_first_position_stays() -> None:
    heads = torch.randn(1, 2, 6)
    assert torch.equal(rotate(heads, rotation(torch.tensor([0]), 6)), heads)
