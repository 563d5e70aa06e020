"""Adapters: silent at first, what Houlsby's formula says after, and the only ones that learn."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from osbert.models.adapting.tuning import freeze_lowest, learn_only, trainable_modules
from osbert.models.transformer.added_layers import Adapter


def test_new_ones_are_silent(make_backbone, make_batch) -> None:
    batch = make_batch([7, 5, 2])
    plain, backbone = make_backbone(), make_backbone(seed=1, adapters=4)
    backbone.load_state_dict(plain.state_dict(), strict=False)
    assert torch.equal(plain(batch).hidden, backbone(batch).hidden)
    assert sum(isinstance(part, Adapter) for part in backbone.modules()) == 4


def test_the_formula() -> None:
    torch.manual_seed(0)
    adapter = Adapter(8, 3)
    torch.nn.init.normal_(adapter.up.weight)
    hidden = torch.randn(5, 8)
    low = functional.gelu(hidden @ adapter.down.weight.T + adapter.down.bias)
    torch.testing.assert_close(adapter(hidden), hidden + low @ adapter.up.weight.T + adapter.up.bias)


def test_a_block_puts_them_before_the_sum(make_backbone, make_batch) -> None:
    """Negating a sublayer by its adapter (up and down the identity's negative) leaves the input alone."""
    backbone, batch = make_backbone(adapters=4, normalization="pre"), make_batch([5, 3])
    layout, hidden = backbone.layout(batch), backbone.embeddings(batch)
    block = backbone.blocks[0]
    torch.nn.init.normal_(block.attention_adapter.up.weight)
    torch.nn.init.normal_(block.feedforward_adapter.up.weight)
    first = hidden + block.attention_adapter(block.attention(block.attention_norm(hidden), layout))
    fed = block.down(block.activation(block.up(block.feedforward_norm(first))))
    torch.testing.assert_close(block(hidden, layout), first + block.feedforward_adapter(fed))


def test_they_and_the_norms_learn_and_nothing_below(make_backbone, make_batch) -> None:
    backbone = make_backbone(adapters=4).train()
    learn_only(backbone, trainable_modules(backbone))
    backbone(make_batch([7, 5])).pooled.square().sum().backward()
    for name, weight in backbone.named_parameters():
        own = "adapter" in name or name.startswith("pooler") or ("norm" in name and name.startswith("blocks"))
        assert (weight.grad is not None) == own == weight.requires_grad, name


def test_frozen_layers_get_no_gradient(make_backbone, make_batch) -> None:
    backbone = make_backbone().train()
    freeze_lowest(backbone, 1)
    backbone(make_batch([7, 5])).pooled.square().sum().backward()
    for name, weight in backbone.named_parameters():
        assert (weight.grad is None) == name.startswith(("embeddings.", "blocks.0.")), name
    whole = make_backbone()
    freeze_lowest(whole, 0)
    assert all(weight.requires_grad for weight in whole.parameters())


def test_layers_that_share_a_block_are_frozen_together(make_backbone) -> None:
    backbone = make_backbone(layers=4, distinct=2)
    for layers in (1, 3):
        with pytest.raises(ValueError, match=r"distinct is 2.*multiple of 2"):
            freeze_lowest(backbone, layers)
    assert all(weight.requires_grad for weight in backbone.parameters())
    freeze_lowest(backbone, 2)
    assert [weight.requires_grad for weight in (backbone.blocks[0].up.weight, backbone.blocks[1].up.weight)] == [0, 1]
