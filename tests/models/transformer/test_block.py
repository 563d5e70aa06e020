"""Blocks beside torch's own TransformerEncoder: norms after and before, with and without biases."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from osbert.models.contract import Learner
from osbert.models.families.transformer import Transformer
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.transformer import kernels
from osbert.models.transformer.layout import Layout


def theirs(backbone: Transformer) -> nn.TransformerEncoder:
    """Return torch's encoder with the weights of ours."""
    sizes = backbone.architecture
    before = sizes.normalization == "pre"
    layer = nn.TransformerEncoderLayer(
        sizes.width,
        sizes.heads,
        sizes.feedforward,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=sizes.epsilon,
        batch_first=True,
        norm_first=before,
        bias=sizes.biases,
    )
    last = nn.LayerNorm(sizes.width, eps=sizes.epsilon, bias=sizes.biases) if before else None
    encoder = nn.TransformerEncoder(layer, sizes.layers, norm=last, enable_nested_tensor=False)
    names = {"attention.inward.": "self_attn.in_proj_", "attention.outward.": "self_attn.out_proj.", "up.": "linear1.",
             "down.": "linear2.", "attention_norm.": "norm1.", "feedforward_norm.": "norm2."}  # fmt: skip
    state = {}
    for name, weight in backbone.state_dict().items():
        if name.startswith("blocks."):
            _, layer_number, rest = name.split(".", 2)
            old = next(start for start in names if rest.startswith(start))
            state[f"layers.{layer_number}.{names[old]}{rest.removeprefix(old)}"] = weight
        elif name.startswith("norm."):
            state[name] = weight
    encoder.load_state_dict(state)  # strict: neither side has a weight that the other lacks
    return encoder.eval()


@pytest.mark.parametrize("normalization", ["post", "pre"])
@pytest.mark.parametrize("biases", [True, False])
def test_states_are_those_of_torchs_encoder(make_backbone, make_batch, normalization, biases) -> None:
    backbone = make_backbone(normalization=normalization, biases=biases)
    with torch.no_grad():
        for name, weight in backbone.named_parameters():
            if weight.ndim == 1:  # norms and biases too must matter
                weight.add_(torch.randn(weight.shape) * 0.3), name
        batch = make_batch([7, 7, 7])
        embedded = backbone.embeddings(batch)
        expected = theirs(backbone)(embedded.view(3, 7, -1)).flatten(0, 1)
        states = backbone(batch)
        *_, last = backbone.layers(batch)
    torch.testing.assert_close(states.hidden, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(last, states.hidden)


def test_without_biases_is_as_with_biases_of_zero(make_backbone, make_batch) -> None:
    plain, without = make_backbone(), make_backbone(biases=False)
    inner = [name for name, _ in without.named_parameters() if name.endswith("bias")]
    assert inner == ["pooler.bias"]
    without.load_state_dict(plain.state_dict(), strict=False)  # fresh biases are 0
    batch = make_batch([5, 4])
    torch.testing.assert_close(without(batch).hidden, plain(batch).hidden)
    torch.testing.assert_close(without(batch).pooled, plain(batch).pooled)


def test_attention_weights_are_taken_behind_the_norm(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(normalization="pre"), make_batch([6])
    block, layout = backbone.blocks[0], backbone.layout(batch)
    (first, *_) = backbone.weights(batch)
    seen = block.attention.weights(block.attention_norm(backbone.embeddings(batch)), layout)
    torch.testing.assert_close(first, seen)


def unmixed(query, key, value, layout: Layout, *, dropout: float) -> torch.Tensor:
    """Stand in for flash attention: a product that depends on each of its arguments."""
    size = layout.longest + layout.longest_queries + dropout + len(layout.bounds)
    return query * (key.mean() + value.mean()) / size


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch.compile looks at it itself
@pytest.mark.parametrize("flash", [False, True])
def test_blocks_are_compiled_once_for_all_batches(make_backbone, make_batch, monkeypatch, flash: bool) -> None:
    """Whatever the lengths and their number: on a GPU each compilation takes half a minute.

    With flash attention a layer is one graph, since each further one costs the host time: one for the last layer, in
    which only some tokens have queries, and one for all others.
    """
    backbone = make_backbone(layers=3).train()
    learner = Learner(backbone, {"mlm": MaskedLanguageHead(backbone)})
    graphs: list[torch.fx.GraphModule] = []
    if flash:
        monkeypatch.setattr(kernels, "_flashes", lambda query, layout: True)
        monkeypatch.setattr(kernels, "varlen", unmixed)

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    for block in backbone.blocks:
        block.compile(dynamic=True, backend=backend)
    counts = []
    for lengths in ([9, 8], [8, 8, 7], [9, 8, 8, 7, 5, 3], [6, 5, 4, 4], [12, 11, 10, 9, 8, 7, 6, 5, 4], [30, 2]):
        learner(make_batch(lengths, masked=1))["mlm"].total.backward()
        counts.append(len(graphs))
    assert counts[0] and len(set(counts)) == 1, counts
    if flash:
        assert counts[0] == 2
