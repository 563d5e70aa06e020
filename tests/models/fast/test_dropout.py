"""Dropout: the share, the scale, independence, and repetition with the seed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from osbert.models.fast.dropout import Dropout, dropout


@given(shape=st.lists(st.integers(0, 5), max_size=3), share=st.floats(0, 0.99), seed=st.integers(0, 99))
def test_every_number_is_dropped_or_scaled(shape: list[int], share: float, seed: int) -> None:
    torch.manual_seed(seed)
    values = torch.randn(shape, requires_grad=True)
    found = dropout(values, share)
    assert found.shape == values.shape
    found.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(found, values * values.grad)
    kept = values.grad[values.grad != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - share)), rtol=2e-3, atol=0)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_the_share_and_the_mean_are_right(share: float) -> None:
    torch.manual_seed(0)
    count = 1_000_003
    found = dropout(torch.ones(count), share)
    spread = (share * (1 - share) / count) ** 0.5
    assert (found == 0).float().mean().item() == pytest.approx(share, abs=4 * spread)
    assert found.mean().item() == pytest.approx(1, abs=4 * spread / (1 - share))


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    gone = (dropout(torch.ones(400_000), 0.5) == 0).float() - 0.5
    for distance in range(1, 9):
        correlation = (gone[distance:] * gone[:-distance]).mean().item() / 0.25
        assert abs(correlation) < 4 / 400_000**0.5, distance


def test_the_seed_decides_and_evaluation_does_nothing() -> None:
    layer, values = Dropout(0.5), torch.randn(9, 7)
    torch.manual_seed(3)
    first = layer(values)
    assert not torch.equal(first, layer(values))
    torch.manual_seed(3)
    assert torch.equal(first, layer(values))
    assert layer.eval()(values) is values
    assert dropout(values, 0.0) is values
