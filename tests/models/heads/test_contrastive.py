"""The contrastive head against plain loops: which sequences belong together, and the loss of finding one's own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate, halves
from osbert.data.example import Example, Target
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.contrastive import ContrastiveHead, partners

RECORDS = {7: (3, 6), 2: (5, 4), 5: (6, 6), 9: (2, 3)}
"""The lengths of the two texts of each record."""


@pytest.fixture
def batch() -> Batch:
    rng = np.random.default_rng(0)
    examples = []
    for record, lengths in RECORDS.items():
        for side, n in enumerate(lengths):
            no = np.zeros(n, np.bool_)
            targets = {} if side else {"own": Target(labels=np.zeros(1, np.int64))}
            ids = rng.integers(5, 50, n)
            segments = np.zeros(n, np.int64)
            examples.append(Example(ids=ids, segments=segments, words=no, special=no, record=record, targets=targets))
    return collate(examples)


def test_a_text_and_its_partner_are_of_one_record(batch: Batch) -> None:
    first = batch.targets["own"].index
    second = partners(batch, first)
    assert (batch.records[first] == batch.records[second]).all()
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(8))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_loss_is_that_of_finding_ones_own_among_all(batch: Batch, pooling) -> None:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=8, vocabulary=50, length=8).build()
    head = ContrastiveHead(backbone, target="own", pooling=pooling, temperature=0.05)
    learner = Learner(backbone, {"own": head}).eval()
    loss = learner(batch)["own"]
    states = backbone(batch).hidden.split(list(batch.lengths))
    vectors = {}
    for place, record in enumerate(batch.records.tolist()):
        vector = states[place][0] if pooling == "cls" else states[place].mean(dim=0)
        projected = torch.tanh(head.dense(vector)).detach()
        side = int(place not in batch.targets["own"].index.tolist())
        vectors[record, side] = projected / projected.norm()
    total, hits = 0.0, 0
    for record in RECORDS:
        scores = {other: float(vectors[record, 0] @ vectors[other, 1]) / 0.05 for other in RECORDS}
        total += np.log(sum(np.exp(score) for score in scores.values())) - scores[record]
        hits += max(scores, key=scores.__getitem__) == record
    assert loss.total.item() == pytest.approx(total, rel=1e-4)
    assert (loss.count, int(loss.hits)) == (4, hits)


def test_a_hard_negative_is_one_of_every_record(batch: Batch) -> None:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=8, vocabulary=50, length=8).build()
    head = ContrastiveHead(backbone, target="own", pooling="cls", temperature=0.05)
    learner = Learner(backbone, {"own": head}).eval()
    first = batch.targets["own"].index
    second = partners(batch, first)
    vectors = torch.nn.functional.normalize(torch.tanh(head.dense(head.outputs(backbone(batch), batch))), dim=-1)
    # The last record is taken apart: both its texts are negatives of the other three.
    negatives = torch.stack([first[-1], second[-1]])
    index, labels = torch.cat([first[:-1], negatives]), torch.tensor([0, 0, 0, 1, 1])
    target = dataclasses.replace(batch.targets["own"], index=index, labels=labels, count=3.0)
    loss = learner(dataclasses.replace(batch, targets={"own": target}))["own"]
    scores = vectors[first[:-1]] @ vectors[torch.cat([second[:-1], negatives])].T / 0.05
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(3), reduction="sum")
    assert loss.total.item() == pytest.approx(expected.item(), rel=1e-4) and loss.count == 3


def test_a_step_that_must_stay_whole_has_no_halves(batch: Batch) -> None:
    assert len(halves(batch)) == 2
    whole = dataclasses.replace(batch, whole=True)
    assert halves(whole) == [whole]
