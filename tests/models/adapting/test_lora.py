"""Changes of low rank: nothing at first, equal merged and unmerged, learnt by themselves alone."""

from __future__ import annotations

import pytest
import torch

from osbert.models.adapting.tuning import SCALE, LowRank, add_low_rank, learn_only, merge
from osbert.models.families.transformer import Transformer
from osbert.models.transformer.attention import Attention
from osbert.runs.finetune.model import merge_low_rank


def changed(backbone: Transformer) -> Transformer:
    """Return the backbone with changes that are not nothing."""
    learn_only(backbone, add_low_rank(backbone, 3))
    with torch.no_grad():
        for part in backbone.modules():
            if isinstance(part, LowRank):
                for up in part.ups.values():
                    up.normal_(0, 0.5)
    return backbone


def test_at_first_they_change_nothing(make_backbone, make_batch) -> None:
    batch = make_batch([7, 5, 2])
    plain, backbone = make_backbone(), make_backbone()
    add_low_rank(backbone, 3)
    assert torch.equal(plain(batch).hidden, backbone(batch).hidden)


@pytest.mark.parametrize(
    "settings",
    [{}, {"positions": "rotary"}, {"biases": False, "normalization": "pre"}, {"distinct": 1}, {"key_heads": 1}],
)
def test_merged_and_unmerged_are_equal(make_backbone, make_batch, settings) -> None:
    batch = make_batch([9, 5, 2])
    backbone = changed(make_backbone(**settings))
    plain = make_backbone(**settings)
    with torch.no_grad():
        apart, few = backbone(batch).hidden, backbone(batch, batch.starts).summary
    assert not torch.allclose(apart, plain(batch).hidden, atol=1e-2)
    factors = merge(backbone)
    assert {*backbone.state_dict()} == {*plain.state_dict()}
    torch.testing.assert_close(backbone(batch).hidden, apart, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(backbone(batch).summary, few, atol=2e-5, rtol=1e-4)
    assert len(factors) == len(backbone.blocks) and all({*one} == {"query", "value"} for one in factors.values())


def test_the_merged_matrices_by_hand(make_backbone) -> None:
    backbone = changed(make_backbone())
    low = backbone.blocks[1].attention.inward
    query, key, value = low.linear.weight.detach().clone().chunk(3)
    wanted = torch.cat(
        [
            query + SCALE * low.ups["query"] @ low.downs["query"],
            key,
            value + SCALE * low.ups["value"] @ low.downs["value"],
        ]
    )
    merge(backbone)
    torch.testing.assert_close(backbone.blocks[1].attention.inward.weight, wanted)


def test_only_they_and_what_is_above_get_gradients(make_backbone, make_batch) -> None:
    backbone = changed(make_backbone()).train()
    before = {name: weight.detach().clone() for name, weight in backbone.named_parameters()}
    backbone(make_batch([7, 5])).pooled.square().sum().backward()
    learnt = {name for name, weight in backbone.named_parameters() if weight.grad is not None}
    assert learnt == {name for name in before if ".ups." in name or ".downs." in name or name.startswith("pooler")}
    optimizer = torch.optim.AdamW(backbone.parameters(), lr=0.1, weight_decay=0.1)
    optimizer.step()
    for name, weight in backbone.named_parameters():
        assert torch.equal(weight, before[name]) == (name not in learnt), name


def test_the_part_of_a_product_is_that_of_the_whole(make_backbone, make_batch) -> None:
    backbone = changed(make_backbone())
    attention = backbone.blocks[0].attention
    assert isinstance(attention, Attention)
    hidden = torch.randn(6, 16)
    whole = attention.inward(hidden)
    torch.testing.assert_close(
        whole, torch.nn.functional.linear(hidden, attention.inward.weight, attention.inward.bias)
    )


def test_changes_are_named_as_the_matrices_they_change(make_backbone) -> None:
    """Also where heads share keys and values, so that queries have a layer of their own."""
    backbone = changed(make_backbone(key_heads=1))
    found = merge_low_rank(backbone)
    shapes = {name: (len(change.up), change.down.shape[1]) for name, change in found.items()}
    wanted = {"query": (16, 16), "value": (8, 16)}
    assert shapes == {
        f"encoder.layer.{layer}.attention.self.{name}.weight": shape
        for layer in range(len(backbone.blocks))
        for name, shape in wanted.items()
    }
