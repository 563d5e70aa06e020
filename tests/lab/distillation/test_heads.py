"""What a student learns of a teacher, against the equations: softened outputs, and the cosine of states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.models.architecture import Architecture
from osbert.models.contract import Backbone, Head, Learner
from osbert.models.forms import Values
from osbert.models.heads.grouped import SpanHead
from osbert.models.heads.predictions import LabelsHead, NumberHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert_lab.distillation.heads import SoftTargetHead, StateHead, Teacher

T = 3.0
LENGTHS = (6, 4, 3)


def backbone(width: int = 16) -> Backbone:
    sizes = Architecture(layers=1, heads=2, width=width, vocabulary=20, length=8, dropout=0, attention_dropout=0)
    model: Backbone = sizes.build()
    return model


def batch(target: Target) -> Batch:
    """Return three sequences with one target each, the same for all."""
    rng = np.random.default_rng(0)
    examples = [
        Example(
            ids=rng.integers(5, 20, length),
            segments=np.zeros(length, np.int64),
            words=np.ones(length, np.bool_),
            special=np.zeros(length, np.bool_),
            targets={"soft": target},
            record=place,
        )
        for place, length in enumerate(LENGTHS)
    ]
    return collate(examples)


def entropy(own: Tensor, theirs: Tensor) -> Tensor:
    """Return Hinton's cross-entropy of softened outputs less what the teacher's own entropy is of it, times T^2."""
    shares = functional.softmax(theirs / T, dim=-1)
    crossed = -(shares * functional.log_softmax(own / T, dim=-1)).sum(-1)
    return (crossed + (shares * shares.log()).sum(-1)) * T * T


def taught(head: Head, values: Values, theirs: Tensor, model: Backbone) -> tuple[Tensor, Tensor, float]:
    """Return what the head gives for three sequences, the sum of the losses, and its count, for equal targets."""
    count = len(theirs)
    target = Target(labels=theirs.numpy(), weights=np.full(count, 1 / count, np.float32))
    given = batch(target)
    soft = SoftTargetHead(head, values=values, target="soft", temperature=T, teacher=None)
    states = model(given)
    loss = soft(states, given)
    return head.outputs(states, given), loss.total, loss.count


def test_outputs_of_sequences_are_compared_by_their_form() -> None:
    model, theirs = backbone(), torch.tensor([1.0, -2.0, 0.5])
    own, total, count = taught(SequenceHead(model, target="t", labels=3), "classes", theirs, model)
    assert count == pytest.approx(3)
    torch.testing.assert_close(total, entropy(own, theirs.expand_as(own)).sum())
    own, total, _ = taught(LabelsHead(model, target="t", labels=3), "labels", theirs, model)
    both = [torch.stack([one, torch.zeros_like(one)], -1) for one in (own, theirs.expand_as(own))]
    torch.testing.assert_close(total, entropy(*both).mean(-1).sum())
    own, total, _ = taught(NumberHead(model, target="t"), "numbers", theirs[:1], model)
    torch.testing.assert_close(total, (own - theirs[:1]).square().sum())


def test_tokens_and_spans_are_compared_with_the_teacher_at_work() -> None:
    model, other = backbone(), backbone(32)
    tags = batch(Target(labels=np.zeros(2, np.float32), index=np.array([0, 2])))
    head, theirs = (TagHead(one, target="t", labels=4) for one in (model, other))
    teacher = Teacher(Learner(other, {"t": theirs}), "t")
    soft = SoftTargetHead(head, values="classes", target="soft", temperature=T, teacher=teacher)
    index = tags.targets["soft"].index
    expected = entropy(head.outputs(model(tags), tags)[index], theirs.outputs(other(tags), tags)[index]).sum()
    torch.testing.assert_close(soft(model(tags), tags).total, expected)

    spans = batch(Target(labels=np.zeros(2, np.float32)))
    own, one = SpanHead(model, target="t"), SpanHead(other, target="t")
    soft = SoftTargetHead(
        own, values="classes", target="soft", temperature=T, teacher=Teacher(Learner(other, {"t": one}), "t")
    )
    scores = own.outputs(model(spans), spans), one.outputs(other(spans), spans)
    parts = [[part.T for part in score.split(list(spans.lengths))] for score in scores]  # (2, n) each
    expected = torch.stack([entropy(first, second).sum() for first, second in zip(*parts)]).sum()
    loss = soft(model(spans), spans)
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == 6


def test_states_are_compared_by_their_cosines() -> None:
    """Those of the teacher itself are 0 apart; narrower ones are mapped; a sequence counts once, however long it is."""
    model = backbone()
    given = batch(Target(labels=np.zeros(1, np.float32)))
    teacher = Teacher(Learner(model, {}), "t")
    head = StateHead(model, target="soft", teacher=teacher)
    assert head.map is None
    assert head(model(given), given).total.item() == pytest.approx(0, abs=1e-5)
    states = model(given)
    first = torch.zeros_like(states.hidden[:1]).expand_as(states.hidden).clone()
    first[: given.lengths[0]] = -states.hidden[: given.lengths[0]].detach()
    first[given.lengths[0] :] = states.hidden[given.lengths[0] :].detach()
    moved = head(type(states)(hidden=first, summary=states.summary, pooled=states.pooled), given)
    assert moved.total.item() == pytest.approx(2, abs=1e-4)
    assert moved.count == 3
    narrow = StateHead(backbone(8), target="soft", teacher=teacher)
    assert narrow.map is not None
    assert narrow.map.weight.shape == (16, 8)
