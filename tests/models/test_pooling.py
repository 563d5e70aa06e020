"""Pooling: each against a loop over plain numbers, with gradients."""

from __future__ import annotations

from typing import get_args

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


@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_each_pooling_is_what_its_name_says(pooling: Pooling, skip: int) -> None:
    batch = collate([example(n) for n in LENGTHS])
    states = torch.randn(9, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    found = torch.stack(pool_states(states, batch, pooling, batch.starts, skip=skip))
    assert found.shape == (3, 2, 4)
    rows = np.split(states.detach().numpy(), np.cumsum(LENGTHS)[:-1])
    for row, vector in zip(rows, found.detach().numpy(), strict=True):
        first = min(skip, len(row) - 1)
        pooled, weights = row[first:], range(first + 1, len(row) + 1)
        expected = {
            "cls": pooled[0],
            "mean": sum(pooled) / len(pooled),
            "max": pooled.max(axis=0),
            "weighted": sum(weight * state for weight, state in zip(weights, pooled)) / sum(weights),
            "mean_sqrt": sum(pooled) / len(pooled) ** 0.5,
            "last": pooled[-1],
        }[pooling]
        np.testing.assert_allclose(vector, expected, atol=1e-12)
    found.sum().backward()
    assert states.grad is not None and states.grad.abs().sum() > 0
