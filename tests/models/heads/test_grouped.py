"""Softmaxes over groups equal torch's, group by group; heads weigh records as they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.models.architecture import Architecture
from osbert.models.families.transformer import Transformer
from osbert.models.heads.grouped import ChoiceHead, SpanHead, log_softmax_within


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), seed=st.integers(0, 9))
def test_a_softmax_within_groups_is_torchs(sizes: list[int], seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = 50 * torch.randn(sum(sizes), 2, generator=rng)
    rows = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    shuffled = torch.randperm(len(rows), generator=rng)
    logs, top = log_softmax_within(scores[shuffled], rows[shuffled], len(sizes))
    for row, part in enumerate(scores.split(sizes)):
        mine = logs[torch.argsort(shuffled)][rows == row]
        torch.testing.assert_close(mine, functional.log_softmax(part, dim=0))
        assert torch.equal(top[row], part.max(dim=0).values)


@pytest.fixture(scope="module")
def backbone() -> Transformer:
    torch.manual_seed(0)
    return Architecture(layers=1, heads=2, width=8, vocabulary=9, length=8).build().eval()


def example(length: int, record: int, target: Target | None) -> Example:
    flags = np.zeros(length, bool)
    ids = np.random.default_rng(length + 9 * record).integers(0, 9, length)
    targets = {} if target is None else {"x": target}
    return Example(ids=ids, segments=0 * ids, words=flags, special=flags, record=record, targets=targets)


def test_the_loss_of_spans_is_the_mean_of_start_and_end(backbone: Transformer) -> None:
    torch.manual_seed(1)
    head = SpanHead(backbone, target="x")
    spans = {3: (0, 2), 5: (1, 1), 8: (0, 0)}
    batch = collate(
        [
            example(length, length, Target(labels=np.array([0, 1]), index=np.array(span)))
            for length, span in spans.items()
        ]
    )
    states = backbone(batch)
    outputs = head.outputs(states, batch)
    assert outputs.shape == (16, 2)
    expected = [
        functional.cross_entropy(part.T, torch.tensor(spans[len(part)])) for part in outputs.split(list(batch.lengths))
    ]
    loss = head(states, batch)
    assert loss.count == 6
    torch.testing.assert_close(loss.total / loss.count, torch.stack(expected).mean())
    best = [(part.argmax(dim=0) == torch.tensor(spans[len(part)])).sum() for part in outputs.split(list(batch.lengths))]
    assert loss.hits == sum(best)


def choices(batch_records: list[tuple[int, int, bool]]) -> Batch:
    right = Target(labels=np.array([0]))
    return collate([example(length, record, right if chosen else None) for length, record, chosen in batch_records])


def test_the_loss_of_choices_is_a_softmax_over_those_of_a_record(backbone: Transformer) -> None:
    torch.manual_seed(1)
    head = ChoiceHead(backbone, target="x", dropout=0.0)
    batch = choices([(3, 7, False), (5, 4, True), (4, 7, True), (8, 4, False), (2, 7, False)])
    states = backbone(batch)
    loss, scores = head(states, batch), head.outputs(states, batch).squeeze(1)
    assert loss.count == 2
    total = 0.0
    for record, right in ((7, 4), (4, 5)):
        of_record = (batch.records == record).nonzero().squeeze(1)
        place = [batch.lengths[row] for row in of_record.tolist()].index(right)
        total += functional.cross_entropy(scores[of_record][None], torch.tensor([place])).item()
    assert loss.total.item() == pytest.approx(total, rel=1e-5)
    assert 0 <= int(loss.hits) <= 2
    head.dropout.probability = 0.9
    assert not torch.equal(head.train()(states, batch).total, loss.total)
