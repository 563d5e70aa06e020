"""Pooling: each against a loop over plain numbers, with gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.models.forms import Pooling, pool_states

LENGTHS = (5, 3, 1)


def example(n: int) -> Example:
    zeros = np.zeros(n, np.int64)
    return Example(ids=zeros, segments=zeros, words=zeros.astype(bool), special=zeros.astype(bool))


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "weighted"])
def test_each_pooling_is_what_its_name_says(pooling: Pooling) -> None:
    batch = collate([example(n) for n in LENGTHS])
    states = torch.randn(9, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    found = torch.stack(pool_states(states, batch, pooling, batch.starts))
    assert found.shape == (3, 2, 4)
    rows = np.split(states.detach().numpy(), np.cumsum(LENGTHS)[:-1])
    for row, vector in zip(rows, found.detach().numpy(), strict=True):
        places = range(1, len(row) + 1)
        expected = {
            "cls": row[0],
            "mean": sum(row) / len(row),
            "max": row.max(axis=0),
            "weighted": sum(place * state for place, state in zip(places, row)) / sum(places),
        }[pooling]
        np.testing.assert_allclose(vector, expected, atol=1e-12)
    found.sum().backward()
    assert states.grad is not None and states.grad.abs().sum() > 0
