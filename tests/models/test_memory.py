"""Memory: a text read in segments equals one pass over it, causal or under a band; nothing else is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.families.transformer import Transformer
from osbert.models.memory import Memory, Past
from osbert.models.transformer import runs
from osbert.models.transformer.layout import Layout

WIDTH, LAYERS, SEGMENT, VOCABULARY = 16, 3, 4, 50
CHANGES = [{"positions": "distances"}, {"positions": "rotary"}, {"positions": "none", "distance_scores": 8}]


def backbone_of(**changes: object) -> Transformer:
    torch.manual_seed(0)
    sizes = {"layers": LAYERS, "heads": 2, "width": WIDTH, "vocabulary": VOCABULARY, "deviation": 0.4}
    settings = sizes | {"positions": "distances", "direction": "left_to_right", "segments": 0} | changes
    return Architecture(**settings).build().eval()


def batch_of(texts: Sequence[np.ndarray], records: Sequence[int] | None = None) -> Batch:
    """Return texts as a batch, in their order: they are of one length, or the longest comes first."""
    return collate(
        [
            Example(
                ids=ids,
                segments=np.zeros(len(ids), np.int64),
                words=np.ones(len(ids), np.bool_),
                special=np.zeros(len(ids), np.bool_),
                record=number if records is None else records[number],
            )
            for number, ids in enumerate(texts)
        ]
    )


def texts_of(count: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCABULARY, (count, length))


def none_of(backbone: Transformer, count: int, most: int) -> Past:
    return Past(layers=[torch.zeros(0, WIDTH)] * LAYERS, lengths=(0,) * count, most=most)


def in_segments(backbone: Transformer, texts: np.ndarray, memory: int) -> Tensor:
    """Return the states (count, length, D) of texts that are read a segment at a time."""
    past, found = none_of(backbone, len(texts), memory), []
    for first in range(0, texts.shape[1], SEGMENT):
        states, past = backbone.forward_with_past(batch_of(texts[:, first : first + SEGMENT]), past)
        found.append(states.hidden.unflatten(0, (len(texts), -1)))
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_memory_as_long_as_the_past_is_one_causal_pass(changes: dict[str, object]) -> None:
    backbone, texts = backbone_of(**changes), texts_of(2, 4 * SEGMENT)
    whole = backbone(batch_of(texts)).hidden.unflatten(0, (2, -1))
    torch.testing.assert_close(in_segments(backbone, texts, texts.shape[1]), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("memory", [1, 3, SEGMENT, 6])
def test_a_shorter_memory_is_one_pass_under_a_band(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    """A query sees keys from `memory` tokens before its own segment on."""
    backbone, texts = backbone_of(), texts_of(1, 4 * SEGMENT)
    found = in_segments(backbone, texts, memory)[0]

    def banded(self: Layout, run: runs.TokenRun, keys: slice, queries: slice, length: int) -> runs.TokenRun:
        query, key = torch.arange(length)[:, None], torch.arange(length)
        visible = (key <= query) & (key >= query // SEGMENT * SEGMENT - memory)
        return replace(run, visible=visible[None, None])

    monkeypatch.setattr(Layout, "_seeing", banded)
    torch.testing.assert_close(found, backbone(batch_of(texts)).hidden, rtol=1e-5, atol=1e-5)


def test_sequences_of_uneven_pasts_are_what_they_are_alone() -> None:
    backbone, texts = backbone_of(), texts_of(2, 3 * SEGMENT)
    _, first = backbone.forward_with_past(batch_of(texts[:1, :SEGMENT]), none_of(backbone, 1, 9))
    both = Past(layers=first.layers, lengths=(SEGMENT, 0), most=9)
    found, past = backbone.forward_with_past(batch_of(texts[:, SEGMENT : 2 * SEGMENT]), both)
    alone, after = backbone.forward_with_past(batch_of(texts[:1, SEGMENT : 2 * SEGMENT]), first)
    fresh = backbone(batch_of(texts[1:, SEGMENT : 2 * SEGMENT])).hidden
    torch.testing.assert_close(found.hidden, torch.cat([alone.hidden, fresh]))
    assert past.lengths == (2 * SEGMENT, SEGMENT) and after.lengths == (2 * SEGMENT,)


def test_a_sparse_last_layer_reads_the_past_too() -> None:
    backbone, texts = backbone_of(), texts_of(2, 2 * SEGMENT)
    _, past = backbone.forward_with_past(batch_of(texts[:, :SEGMENT]), none_of(backbone, 2, SEGMENT))
    batch = batch_of(texts[:, SEGMENT:])
    every, after = backbone.forward_with_past(batch, past)
    some, again = backbone.forward_with_past(batch, past, batch.read)
    torch.testing.assert_close(some.hidden[batch.read], every.hidden[batch.read])
    assert torch.equal(after.layers[-1], again.layers[-1])


def test_no_gradient_reaches_the_past_and_the_past_is_used() -> None:
    backbone, texts = backbone_of(), texts_of(1, 2 * SEGMENT)

    def second(texts: np.ndarray) -> Tensor:
        _, past = backbone.forward_with_past(batch_of(texts[:, :SEGMENT]), none_of(backbone, 1, SEGMENT))
        assert not any(layer.requires_grad for layer in past.layers)
        return backbone.forward_with_past(batch_of(texts[:, SEGMENT:]), past)[0].hidden

    second(texts).sum().backward()
    used = backbone.embeddings.pieces.weight.grad.abs().sum(dim=1) > 0
    assert set(used.nonzero().flatten().tolist()) <= set(texts[0, SEGMENT:].tolist())
    other = texts.copy()
    other[0, 0] = (other[0, 0] + 1) % VOCABULARY
    assert ((second(texts) - second(other)).abs().amax(dim=1) > 1e-5).all()


def learner_of(streams: int, length: int = SEGMENT) -> Learner:
    learner = Learner(backbone_of(), {})
    learner.memory = Memory(streams=streams, layers=LAYERS, length=length, width=WIDTH)
    return learner


def step(learner: Learner, texts: np.ndarray, turn: int) -> Tensor:
    """Return the states of the segment `turn` of each text, whose records are those of a stream loader."""
    columns = texts[:, turn * SEGMENT : (turn + 1) * SEGMENT]
    return learner.states(batch_of(columns, [turn * len(texts) + row for row in range(len(texts))])).hidden


def test_each_stream_finds_its_past_and_a_step_can_be_taken_again() -> None:
    learner, texts = learner_of(2).train(), texts_of(2, 3 * SEGMENT)
    learner.backbone.eval()
    whole = in_segments(learner.backbone, texts, SEGMENT)
    for turn in range(3):
        expected = whole[:, turn * SEGMENT : (turn + 1) * SEGMENT].flatten(0, 1)
        torch.testing.assert_close(step(learner, texts, turn), expected)
        torch.testing.assert_close(step(learner, texts, turn), expected)  # after memory ran out, perhaps
    fresh = learner.backbone(batch_of(texts[:, :SEGMENT])).hidden
    torch.testing.assert_close(step(learner, texts, 0), fresh)  # nothing came before


def test_evaluation_begins_with_no_past_and_leaves_that_of_training_alone() -> None:
    learner, texts = learner_of(2).train(), texts_of(2, 3 * SEGMENT)
    learner.backbone.eval()
    step(learner, texts, 0)
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    assert {"memory.kept.states", "memory.kept.counts", "memory.kept.records"} <= before.keys()
    learner.eval()
    fresh = learner.backbone(batch_of(texts[:, SEGMENT : 2 * SEGMENT])).hidden
    torch.testing.assert_close(step(learner, texts, 1), fresh)
    assert not torch.allclose(step(learner, texts, 2), learner.backbone(batch_of(texts[:, 2 * SEGMENT :])).hidden)
    after = learner.train().state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_states_that_are_not_finite_are_not_kept() -> None:
    memory = Memory(streams=1, layers=1, length=2, width=3)
    rows = torch.tensor([[1.0, float("nan"), float("inf")]])
    memory.keep(torch.tensor([0]), Past(layers=[rows], lengths=(1,), most=2))
    assert memory.of(torch.tensor([1])).layers[0].tolist() == [[1.0, 0.0, 0.0]]
