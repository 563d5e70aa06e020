"""A smaller matrix computes what a gate of 0 does, for all kinds of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert_lab.analysis.hooks import gate_heads
from osbert_lab.pruning.heads import choose_heads, keep_heads, obstacle
from tiny_models import make_batch, make_examples

__all__ = ["make_batch", "make_examples"]
SIZES = Architecture(layers=3, heads=4, width=16, feedforward=20, vocabulary=60, length=30, deviation=0.4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "rotary", "biases": False},
        {"positions": "disentangled", "distance_projections": True, "buckets": 4},
        {"positions": "disentangled", "pooling": "none"},
        {"positions": "distances", "segment_scores": True, "segments": 2},
        {"distinct": 1, "normalization": "pre"},
        {"head_width": 6},
    ],
    ids=str,
)
def test_fewer_heads_compute_what_gates_of_zero_do(changes: dict[str, Any], make_batch: Callable[..., Batch]) -> None:
    torch.manual_seed(0)
    backbone = SIZES.replace(**changes).build().eval()
    batch = make_batch([20, 9, 3])
    rng = np.random.default_rng(0)
    kept = choose_heads(backbone, rng.random((3, 4)), 1)
    assert [len(heads) for heads in kept] == [3] * len(backbone.blocks)
    gates = torch.zeros(3, 4)
    for layer, block in enumerate(backbone.depth):
        gates[layer, kept[[*backbone.blocks].index(block)]] = 1
    smaller = keep_heads(backbone, kept).eval()
    assert sum(map(torch.numel, smaller.parameters())) < sum(map(torch.numel, backbone.parameters()))
    with torch.no_grad():
        wanted = gate_heads(Learner(backbone, {}), gates).backbone(batch).hidden
        torch.testing.assert_close(smaller(batch).hidden, wanted, rtol=0, atol=1e-5)


def test_the_least_important_heads_go_and_shared_blocks_have_one_choice() -> None:
    importance = np.array([[0.4, 0.1, 0.3, 0.2], [0.1, 0.9, 0.8, 0.7], [0.1, 0.2, 0.8, 0.1]])
    backbone = SIZES.build()
    assert choose_heads(backbone, importance, 2) == [[0, 2], [1, 2], [1, 2]]
    assert choose_heads(SIZES.replace(distinct=1).build(), importance, 3) == [[2]]


@pytest.mark.parametrize(("changes", "reason"), [({"key_heads": 2}, "key_heads"), ({"distance_scores": 8}, "distance")])
def test_heads_that_share_something_stay(changes: dict[str, Any], reason: str) -> None:
    assert reason in obstacle(SIZES.replace(**changes).build())
    assert obstacle(SIZES.build()) == ""
