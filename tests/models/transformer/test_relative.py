"""Relative attention: scores of distances and segments, equal to transformers' XLNet, and the laws of a flat batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import XLNetConfig, XLNetModel

from osbert.data.batch import Batch
from osbert.models.architecture import Architecture
from osbert.models.families.transformer import Transformer
from osbert.models.memory import Past
from osbert.models.transformer.kernels import fastest, reference

LAYERS, HEADS, WIDTH, VOCABULARY = 2, 2, 16, 50


def theirs_of(direction: str, farthest: int) -> XLNetModel:
    """Return a tiny XLNet with random weights that are large enough to matter."""
    torch.manual_seed(0)
    config = XLNetConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        d_inner=4 * WIDTH,
        attn_type="uni" if direction == "left_to_right" else "bi",
        clamp_len=farthest,
        dropout=0.0,
    )
    model = XLNetModel(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def ours_of(theirs: XLNetModel, direction: str, farthest: int, segments: bool) -> Transformer:
    """Return the same model as one of ours, with its weights."""
    backbone = Architecture(
        layers=LAYERS,
        heads=HEADS,
        width=WIDTH,
        vocabulary=VOCABULARY,
        positions="distances",
        farthest=farthest,
        direction=direction,
        segment_scores=segments,
        segments=0,
        embedding_norm=False,
        pooling="none",
        dropout=0.0,
        attention_dropout=0.0,
    ).build()
    state = {"embeddings.pieces.weight": theirs.word_embedding.weight}
    for number, layer in enumerate(theirs.layer):
        attention = layer.rel_attn

        def flat(weight: Tensor) -> Tensor:
            return weight.flatten(1).T  # (D, H, K) -> (H * K, D)

        own = {
            "attention.inward.weight": torch.cat([flat(attention.q), flat(attention.k), flat(attention.v)]),
            "attention.outward.weight": attention.o.flatten(1),
            "attention.relative.inward.weight": flat(attention.r),
            "attention.relative.content": attention.r_w_bias.flatten(),
            "attention.relative.distance": attention.r_r_bias.flatten(),
        }
        if segments:
            own["attention.relative.segment"] = attention.r_s_bias.flatten()
            own["attention.relative.segments"] = attention.seg_embed.flatten(1)
        parts = {"attention_norm": attention.layer_norm, "feedforward_norm": layer.ff.layer_norm}
        parts |= {"up": layer.ff.layer_1, "down": layer.ff.layer_2}
        for name, module in parts.items():
            own |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
        state |= {f"blocks.{number}.{name}": weight for name, weight in own.items()}
    backbone.load_state_dict(state)
    return backbone.eval()


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("farthest", [1000, 4])
@pytest.mark.parametrize("direction", ["both", "left_to_right"])
def test_it_is_xlnet(make_batch, direction: str, farthest: int, segments: bool) -> None:
    theirs = theirs_of(direction, farthest)
    ours = ours_of(theirs, direction, farthest, segments)
    batch: Batch = make_batch([11, 11, 6, 1])
    batch = replace(batch, segments=torch.randint(0, 3, batch.segments.shape))
    columns = zip(batch.ids.split(batch.lengths), batch.segments.split(batch.lengths), strict=True)
    expected = [
        theirs(ids[None], token_type_ids=kinds[None] if segments else None).last_hidden_state[0]
        for ids, kinds in columns
    ]
    torch.testing.assert_close(ours(batch).hidden, torch.cat(expected), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("direction", ["both", "left_to_right"])
def test_its_memory_over_three_calls_is_xlnets(make_batch, direction: str) -> None:
    theirs, memory = theirs_of(direction, 1000), 6
    theirs.mem_len = memory
    ours = ours_of(theirs, direction, 1000, True)
    past, mems = Past(layers=[torch.zeros(0, WIDTH)] * LAYERS, lengths=(0, 0), most=memory), None
    for seed in range(3):
        batch: Batch = make_batch([4, 4], seed=seed)
        expected = theirs(
            batch.ids.view(2, 4), token_type_ids=batch.segments.view(2, 4), mems=mems, use_mems=True, return_dict=True
        )
        states, past = ours.forward_with_past(batch, past)
        mems = expected.mems
        torch.testing.assert_close(states.hidden, expected.last_hidden_state.flatten(0, 1), atol=2e-5, rtol=2e-5)


@settings(deadline=None, max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    order=st.sampled_from(["none", "causal", "random"]),
    changes=st.sampled_from([{}, {"segment_scores": True}, {"window": 2, "global_every": 2}, {"farthest": 3}]),
    dropout=st.sampled_from([0.0, 1e-9]),
    read=st.booleans(),
    consecutive=st.booleans(),
)
def test_every_kernel_gives_the_same_with_gradients(
    make_batch, lengths, order, changes, dropout, read, consecutive
) -> None:
    torch.manual_seed(0)
    sizes = {"layers": 2, "heads": 2, "width": 16, "vocabulary": 50, "deviation": 0.3, "dropout": 0.0}
    backbone = Architecture(**sizes, positions="distances", **changes).build()
    batch = make_batch(lengths, order=order, masked=1)
    if not consecutive:
        batch = replace(batch, positions=batch.positions * 2 % 9)
    at = batch.read if read else None

    def run(kernel: object) -> list[Tensor]:
        for block in backbone.blocks:
            block.attention.kernel, block.attention.dropout = kernel, dropout
        states = backbone.train(dropout > 0)(batch, at)
        hidden = states.hidden if at is None else states.hidden[at]
        backbone.zero_grad()
        hidden.square().sum().backward()
        return [hidden.detach(), *(w.grad for w in backbone.parameters() if w.grad is not None)]

    for one, other in zip(run(fastest), run(reference), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_looking_left_encodes_no_distance_of_a_later_key(make_batch) -> None:
    sizes = {"layers": 1, "heads": 2, "width": 16, "vocabulary": 50, "positions": "distances"}
    for direction, rows in (("both", 17), ("left_to_right", 9)):
        backbone = Architecture(**sizes, direction=direction).build()
        assert backbone.layout(make_batch([9, 4])).distances.vectors.shape == (rows, 16)
