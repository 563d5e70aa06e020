"""Rotary positions: only distances count, and the turn is the published one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from osbert.models.architecture import Architecture
from osbert.models.transformer.positions import neighbours, rotate, rotation


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


def test_compiled_it_turns_alike_without_complex_numbers() -> None:
    heads, turns = torch.randn(5, 2, 8), rotation(torch.arange(5), 8)
    compiled = torch.compile(rotate, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(heads, turns), rotate(heads, turns))


def test_the_first_position_stays() -> None:
    heads = torch.randn(1, 2, 6)
    assert torch.equal(rotate(heads, rotation(torch.tensor([0]), 6)), heads)


@pytest.mark.parametrize(("head", "distance"), [(0, -1), (1, 1), (4, -1)])
def test_heads_start_at_their_neighbours(head: int, distance: int) -> None:
    query, key = neighbours(5, 64, 2.0)
    turns = rotation(torch.arange(30), 64)
    turned = [rotate(bias[head].expand(30, 1, 64), turns)[:, 0] for bias in (query, key)]
    shares = (turned[0] @ turned[1].T / 8).softmax(dim=-1)  # (30, 30), queries in rows
    assert torch.equal(shares[1:-1].argmax(dim=-1), torch.arange(1, 29) + distance)
    sharper = neighbours(5, 64, 4.0)
    assert torch.allclose(sharper, 2 * torch.stack([query, key]))
    assert not query[2:4].any() and not key[2:4].any()


def test_a_fresh_model_with_neighbours_mixes_them(make_batch) -> None:
    """With weights near 0 the first block's attention is the biases' alone."""
    sizes = {"layers": 1, "heads": 2, "width": 128, "vocabulary": 50, "length": 40, "positions": "rotary"}
    backbone = Architecture(neighbours=3.0, deviation=1e-4, **sizes).build().eval()
    [[weights]] = backbone.weights(make_batch([12]))
    before, after = weights
    assert torch.equal(before[1:].argmax(dim=-1), torch.arange(11))
    assert torch.equal(after[:-1].argmax(dim=-1), torch.arange(1, 12))
    with pytest.raises(ValueError, match=r"neighbours is 1\.0, but must be 0, or above 0 with rotary positions"):
        Architecture(**(sizes | {"positions": "learned"}), neighbours=1.0).build()
