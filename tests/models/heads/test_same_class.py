"""The loss of texts of one label against a plain loop over their pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.models.architecture import Architecture
from osbert.models.contract import States
from osbert.models.heads.contrastive import SameClassHead

TINY = Architecture(layers=1, heads=1, width=4, vocabulary=10, length=8).build()


def labelled(labels: list[int]) -> Batch:
    no = np.zeros(3, np.bool_)
    ids = np.arange(5, 8)
    return collate(
        [
            Example(
                ids=ids,
                segments=np.zeros(3, np.int64),
                words=no,
                special=no,
                record=record,
                targets={"own": Target(labels=np.array([label]))},
            )
            for record, label in enumerate(labels)
        ]
    )


@pytest.mark.parametrize("labels", [[0, 1, 0, 2, 1, 0], [1, 1, 1], [0, 1]])
def test_like_and_unlike_pairs_weigh_the_same(labels: list[int]) -> None:
    torch.manual_seed(0)
    batch = labelled(labels)
    pooled = torch.randn(len(labels), 4)
    loss = SameClassHead(TINY, target="own")(States(hidden=pooled, summary=pooled, pooled=pooled), batch)
    errors: dict[bool, list[float]] = {True: [], False: []}
    for (first, one), (second, other) in itertools.combinations(enumerate(labels), 2):
        cosine = float(torch.cosine_similarity(pooled[first], pooled[second], dim=0))
        errors[one == other].append((cosine - (one == other)) ** 2)
    mean = sum(np.mean(kind) for kind in errors.values() if kind)
    assert loss.count == len(labels)
    assert loss.total.item() / loss.count == pytest.approx(mean, rel=1e-5)


def test_a_lone_sequence_has_no_pairs() -> None:
    pooled = torch.ones(1, 4, requires_grad=True)
    loss = SameClassHead(TINY, target="own")(States(hidden=pooled, summary=pooled, pooled=pooled), labelled([1]))
    assert loss.total.item() == 0
    loss.total.backward()
    assert not pooled.grad.any()
