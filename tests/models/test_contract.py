"""The learner: states that no loss reads are left out of the last block, and nothing else changes by it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate
from osbert.data.example import Target
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.families.transformer import Transformer
from osbert.models.heads.grouped import ChoiceHead, SpanHead
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.heads.tagging import TagHead


def make_pair(backbone: Transformer) -> Learner:
    heads = {"mlm": MaskedLanguageHead(backbone), "nsp": SequenceHead(backbone, target="nsp", form="nsp")}
    return Learner(backbone, heads)


@pytest.fixture
def batch(make_examples) -> Batch:
    examples = [
        replace(
            example,
            targets={
                "mlm": Target(labels=example.ids[1:3], index=np.array([1, len(example) - 1])),
                "nsp": Target(labels=np.array([place % 2])),
            },
        )
        for place, example in enumerate(make_examples([12, 9, 9, 30]))
    ]
    return collate(examples)


def gradients(learner: Learner, batch: Batch) -> tuple[dict[str, float], list[torch.Tensor]]:
    learner.zero_grad()
    losses = learner(batch)
    sum(loss.total for loss in losses.values()).backward()
    totals = {name: loss.total.item() for name, loss in losses.items()}
    return totals, [weight.grad.clone() for weight in learner.parameters()]


def check_against_reading_all(learner: Learner, batch: Batch) -> None:
    """Hold losses and gradients against those of a pass that gives every token's state."""
    totals, found = gradients(learner, batch)
    for head in learner.heads.values():
        head.sparse = False
    plain, wanted = gradients(learner, batch)
    assert totals == pytest.approx(plain, rel=1e-5)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [{}, {"normalization": "pre"}, {"positions": "rotary"}, {"direction": "left_to_right"}, {"recurrent": 1}],
    ids=str,
)  # fmt: skip
def test_leaving_out_what_is_not_read_changes_no_loss_and_no_gradient(make_backbone, batch, settings) -> None:
    learner = make_pair(make_backbone(**settings))
    check_against_reading_all(learner, batch)


def test_nor_does_it_where_the_batch_says_who_sees_whom(make_backbone, batch) -> None:
    generator = torch.Generator().manual_seed(0)
    order, positions = torch.randint(0, 9, (2, 60), generator=generator)
    batch = replace(batch, order=order, positions=positions, unseen=torch.rand(60, generator=generator) < 0.2)
    learner = make_pair(make_backbone())
    assert learner.backbone.readable(batch) is not None
    check_against_reading_all(learner, batch)


def test_what_is_read_is_what_carries_labels_or_begins_a_sequence(make_backbone, batch) -> None:
    assert batch.read.tolist() == [0, 1, 29, 30, 31, 41, 42, 43, 50, 51, 52, 59]
    assert batch.reads == (3, 3, 3, 3)
    fewer = replace(batch.targets["mlm"], index=torch.tensor([1, 29, 59]))
    assert replace(batch, targets={"mlm": fewer}).reads == (3, 1, 1, 2)
    states = make_backbone()(batch, batch.read)
    seen = torch.zeros(60, dtype=torch.bool).index_fill(0, batch.read, True)
    assert states.hidden[~seen].isnan().all() and not states.hidden[seen].isnan().any()


def test_everything_is_kept_where_much_is_read_or_a_head_reads_it_all(make_backbone, make_batch, batch) -> None:
    backbone = make_backbone()
    assert backbone.readable(batch) is batch.read
    assert backbone.readable(make_batch([9, 9], masked=8)) is None
    ordered = replace(batch, order=batch.positions)
    assert backbone.readable(ordered) is ordered.read
    assert make_backbone(direction="left_to_right").readable(batch) is None
    assert make_backbone(recurrent=1).readable(batch) is None


def test_relabelled_batches_are_read_where_their_labels_are(batch) -> None:
    assert len(batch.read) == 12
    assert replace(batch, targets={"nsp": batch.targets["nsp"]}).read.tolist() == batch.starts.tolist()


@pytest.mark.parametrize(
    "make",
    [
        partial(SequenceHead, target="t", labels=3),
        partial(TagHead, target="t", labels=3),
        partial(SpanHead, target="t"),
        partial(ChoiceHead, target="t"),
    ],
)
def test_scores_start_from_a_normal_that_is_not_cut(make) -> None:
    torch.manual_seed(0)
    backbone = Architecture(vocabulary=9, layers=1, width=4096, heads=1, feedforward=8, deviation=0.02).build()
    layer = make(backbone).linear
    assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)  # cut, it would be 0.88 of it
    assert layer.weight.abs().max() > 0.04
    assert torch.all(layer.bias == 0)


@pytest.mark.parametrize("changes", [{"positions": "alibi"}, {"activation": "swish"}, {"direction": "right_to_left"}])
def test_a_value_outside_a_fixed_set_is_refused_from_python_too(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        Architecture(vocabulary=10, **changes).build()
