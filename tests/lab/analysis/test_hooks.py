"""Interventions: gates of heads and changed states, on layers of their own and on shared ones, in a copy alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.example import Example
from osbert.evaluation.forward import batches
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.families.transformer import Transformer
from osbert_lab.analysis.hooks import Change, change_states, gate_heads


def model(distinct: int = 3) -> Transformer:
    torch.manual_seed(0)
    built = Architecture(layers=3, heads=2, width=16, vocabulary=20, length=12, distinct=distinct).build()
    assert isinstance(built, Transformer)
    return built.eval()


def batch() -> Batch:
    ids = [np.arange(5, 5 + length, dtype=np.int32) for length in (7, 4)]
    none = [np.zeros(len(one), bool) for one in ids]
    examples = [
        Example(ids=one, segments=np.zeros(len(one), np.int8), words=no, special=no) for one, no in zip(ids, none)
    ]
    [made] = batches(examples)
    return made


def hidden(backbone: Transformer, given: Batch) -> Tensor:
    with torch.no_grad():
        return backbone(given).hidden


def gated(backbone: Transformer, gates: Tensor) -> Transformer:
    copy = gate_heads(Learner(backbone, {}), gates).backbone
    assert isinstance(copy, Transformer)
    return copy


@pytest.mark.parametrize("distinct", [3, 1])
def test_a_gate_takes_one_head_of_one_layer_away(distinct: int) -> None:
    backbone, given = model(distinct), batch()
    whole = hidden(backbone, given)
    gates = torch.ones(3, 2)
    assert torch.equal(hidden(gated(backbone, gates), given), whole)
    gates[1, 0] = 0
    copy = gated(backbone, gates)
    with torch.no_grad():
        states = list(copy.layers(given))
        assert torch.equal(states[-1], hidden(copy, given))
        before = list(backbone.layers(given))
    assert [torch.equal(*pair) for pair in zip(states, before, strict=True)] == [True, True, False, False]
    assert torch.equal(hidden(backbone, given), whole)  # the model itself is as before


def test_a_head_without_weights_above_it_is_a_head_that_is_gated() -> None:
    backbone, given = model(), batch()
    gates = torch.ones(3, 2)
    gates[2, 1] = 0
    found = hidden(gated(backbone, gates), given)
    with torch.no_grad():
        backbone.blocks[2].attention.outward.weight[:, 8:] = 0
    assert torch.allclose(hidden(backbone, given), found, atol=1e-6)


def test_gates_of_tokens_act_on_their_sequence_alone_and_gradients_flow_into_them() -> None:
    backbone, given = model(), batch()
    whole = hidden(backbone, given)
    lengths = torch.tensor(given.lengths)
    gates = torch.ones(3, 2, 2)
    gates[0, 0] = 0
    found = hidden(gated(backbone, gates.repeat_interleave(lengths, dim=1)), given)
    changed = (found - whole).abs().amax(dim=1) > 1e-6
    records = torch.repeat_interleave(torch.arange(2), lengths)
    assert torch.equal(changed, records == 0)
    gates.fill_(1).requires_grad_()
    states = gated(backbone, gates.repeat_interleave(lengths, dim=1))(given).hidden
    (slopes,) = torch.autograd.grad(states[records == 1].square().sum(), gates)
    assert slopes[:, 0].abs().max() == 0 and slopes[:, 1].abs().min() > 0


@pytest.mark.parametrize("distinct", [3, 1])
@pytest.mark.parametrize("layer", [0, 2])
def test_a_layer_puts_out_what_it_is_given(distinct: int, layer: int) -> None:
    backbone, given = model(distinct), batch()
    changes: dict[int, Change] = {}
    copy = change_states(Learner(backbone, {}), changes).backbone
    with torch.no_grad():
        before = list(backbone.layers(given))
        other = torch.randn_like(before[0])
        changes[layer] = lambda state: state + other
        states = list(copy.layers(given))
    assert torch.equal(states[layer], before[layer] + other)
    assert [torch.equal(*pair) for pair in zip(states, before)] == [place < layer for place in range(4)]
    assert torch.equal(hidden(backbone, given), before[-1])
