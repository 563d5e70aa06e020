"""Copies of module trees: the same bits from the same memory, with hooks and modes of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from osbert import components
from osbert.models.contract import Backbone, Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.initialisation import copy_modules


def addresses(module: nn.Module) -> set[int]:
    return {one.data_ptr() for one in [*module.parameters(), *module.buffers()] if one.numel()}


def learner_of(family: str, **sizes: object) -> Learner:
    kind: type[Backbone] = components.find("models.families", family, base=Backbone)
    torch.manual_seed(0)
    backbone = kind.settings().replace(vocabulary=12, width=12, length=16, **sizes).build()
    heads = {} if backbone.embedding is None else {"mlm": MaskedLanguageHead(backbone)}
    return Learner(backbone, heads)


@pytest.mark.parametrize("family", components.names("models.families"))
def test_a_copy_is_the_same_memory_without_gradients(family: str) -> None:
    learner = learner_of(family).train()
    with torch.inference_mode():  # which a caller may have on
        copy = copy_modules(learner)
    assert addresses(copy) == addresses(learner)
    assert [name for name, _ in copy.named_parameters()] == [name for name, _ in learner.named_parameters()]
    assert not any(weight.requires_grad or weight.is_inference() for weight in copy.parameters())
    assert not any(module.training for module in copy.modules())
    assert all(module.training for module in learner.modules())
    assert all(weight.requires_grad for weight in learner.parameters())
    assert not {*copy.modules()} & {*learner.modules()}
    for head in copy.heads.values():
        assert isinstance(head, MaskedLanguageHead)
        assert head.tied[0] is copy.backbone.embedding and not head.pieces.requires_grad


def test_shared_layers_stay_shared_and_hooks_stay_apart() -> None:
    learner = learner_of("transformer", layers=3, distinct=1, heads=2, feedforward=24).eval()
    copy = copy_modules(learner)
    assert len({*copy.backbone.stack}) == 2  # the embeddings and the block
    calls: list[nn.Module] = []
    for module in copy.modules():
        module.register_forward_hook(lambda module, inputs, output: calls.append(module))
    ids = torch.arange(6)
    with torch.no_grad():
        learner.backbone.embedding(ids)  # type: ignore[misc]
        assert not calls
        copy.backbone.embedding(ids)  # type: ignore[misc]
    assert len(calls) == 1


def test_recurrent_layers_have_the_same_bits() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 3, bidirectional=True)
    rows = torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(copy_modules(lstm)(rows)[0], lstm(rows)[0])
