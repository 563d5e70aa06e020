"""The backbone: sizes, first weights, the settings' effects, and the laws of a flat batch."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.data.batch import collate
from osbert.models.architecture import Architecture
from osbert.models.contract import StepSize

lengths = st.lists(st.integers(1, 12), min_size=1, max_size=6)
seeds = st.integers(0, 2**16)
POSITIONS = ["learned", "rotary", "disentangled", "distances"]
V3 = {"positions": "disentangled", "segments": 0, "vocabulary": 128_100}


def count(architecture: Architecture) -> int:
    return sum(parameter.numel() for parameter in architecture.empty().parameters())


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"vocabulary": 30522}, 109_482_240),  # bert-base-uncased
        ({"vocabulary": 28996}, 108_310_272),  # bert-base-cased
        ({"vocabulary": 30522, "layers": 24, "width": 1024, "heads": 16}, 335_141_888),  # bert-large-uncased
        ({"vocabulary": 30522, "layers": 2, "width": 128, "heads": 2}, 4_385_920),  # the smallest of the small family
        (V3, 184_422_144),  # deberta-v3-base, with the pooler that its classifiers have
    ],
)
def test_published_sizes_have_the_published_number_of_parameters(sizes: dict[str, int], expected: int) -> None:
    assert count(Architecture(**sizes)) == expected


def test_weights_start_from_a_normal_cut_at_two_deviations() -> None:
    torch.manual_seed(0)
    backbone = Architecture(vocabulary=2000, layers=2, width=128, heads=2, deviation=0.02).build()
    for name, parameter in backbone.named_parameters():
        if "norm.weight" in name:
            assert torch.all(parameter == 1), name
        elif name.endswith("bias"):
            assert torch.all(parameter == 0), name
        else:
            assert parameter.abs().max() <= 0.04, name
            # A normal cut at two deviations keeps 0.8796 of its deviation.
            assert parameter.std().item() == pytest.approx(0.02 * 0.8796, rel=0.05), name
            assert abs(parameter.mean().item()) < 5 * 0.02 / parameter.numel() ** 0.5, name
    pieces = backbone.embeddings.pieces.weight.flatten() / 0.02
    inside = (pieces.abs() < 1).float().mean().item()
    assert inside == pytest.approx(0.6827 / 0.9545, abs=0.005)


def test_the_seed_alone_decides_the_weights() -> None:
    def build(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        backbone = Architecture(vocabulary=9, layers=1, width=8, heads=2).build()
        return torch.cat([parameter.flatten() for parameter in backbone.parameters()])

    assert torch.equal(build(1), build(1))
    assert not torch.equal(build(1), build(2))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"width": 10, "heads": 3}, "width 10 cannot be shared evenly by 3 heads"),
        ({"width": 9, "heads": 3, "positions": "rotary"}, "a head is 3 wide, which is odd"),
        ({"vocabulary": 0}, "the tokenizer's number of pieces"),
        ({"heads": 0}, "heads is 0"),
        ({"layers": 0, "length": 0}, "layers is 0.*length is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"attention_dropout": -0.1}, "attention_dropout is -0.1"),
        ({"feedforward": -1}, "feedforward is -1"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"recurrent": -1}, "recurrent is -1"),
        ({"adapters": -1}, "adapters is -1"),
        ({"segments": -1}, "segments is -1"),
        ({"embedding": 8}, "which is the width"),
        ({"distinct": -1}, "distinct is -1"),
        ({"layers": 3, "distinct": 2}, "distinct is 2, but 3 layers"),
        ({"layers": 2, "distinct": 4}, "distinct is 4, but 2 layers"),
        ({"positions": "rotary", "first_position": 2}, "rotary positions are not learned"),
        ({"piece_transform": False, "embedding": 4}, "embedding is 4"),
        ({"summary": "first"}, "summary is first"),
        ({"summary": "last", "direction": "left_to_right"}, "summary is last"),
        ({"recurrent": 1, "width": 9, "heads": 3}, "directions cannot share the width 9 evenly"),
        ({"positions": "rotary", "neighbours": 1.0, "biases": False}, "face their neighbours by biases"),
        ({"positions": "rotary", "neighbours": 1.0, "rotary_base": 2e4}, "neighbours is 1.0.* a rotary_base of 10,000"),
        ({"rotary_base": 2e4}, "rotary_base is 20000.0, but positions are learned"),
        ({"positions": "rotary", "rotary_base": 0.0}, "rotary_base is 0.0"),
        ({"window": -1}, "window is -1"),
        ({"window": 4}, "with global_every 1 no block is local"),
        ({"window": 4, "global_every": 0}, "global_every is 0"),
        ({"global_every": 3}, "the window is 0"),
        ({"first_norm": False}, "normalization pre"),
        ({"norm_biases": True}, "norm_biases is True"),
        ({"root_norm": True, "biases": False, "norm_biases": True}, "root_norm is, too"),
        ({"key_heads": -1}, "key_heads is -1"),
        ({"heads": 4, "key_heads": 3}, "key_heads is 3"),
        ({"key_heads": 2}, "key_heads is 2"),
        ({"positions": "rotary", "neighbours": 1.0, "key_heads": 1}, "cannot face different neighbours"),
        ({"distance_scores": 6}, "distance_scores is 6"),
        ({"distance_scores": -4}, "distance_scores is -4"),
        ({"positions": "disentangled", "first_position": 2}, "disentangled positions are not learned"),
        ({"positions": "disentangled", "buckets": 7}, "buckets is 7"),
        ({"positions": "disentangled", "buckets": -2}, "buckets is -2"),
        ({"positions": "disentangled", "buckets": 8, "farthest": 5}, "farthest is 5"),
        ({"positions": "rotary", "farthest": 64}, "farthest is 64, but positions are rotary"),
        ({"project_first": True}, "embedding is 0"),
        ({"positions": "disentangled", "distance_scores": 8}, "distance_scores is 8"),
        ({"positions": "disentangled", "key_heads": 1}, "key_heads is 1"),
        ({"positions": "distances", "distance_scores": 8}, "distance_scores is 8"),
        ({"positions": "distances", "width": 9, "heads": 3}, "width is 9"),
        ({"segment_scores": True}, "segment_scores is True"),
    ],
)
def test_impossible_sizes_are_named(changes: dict[str, object], text: str) -> None:
    sizes = {"vocabulary": 9, "layers": 1, "width": 8, "heads": 2, **changes}
    with pytest.raises(ValueError, match=text):
        Architecture(**sizes).build()


def test_feedforward_is_four_times_the_width_unless_given(make_backbone) -> None:
    assert make_backbone().blocks[0].up.out_features == 64
    assert make_backbone().architecture.feedforward == 64
    assert make_backbone(feedforward=24).blocks[0].up.out_features == 24


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 3},
        {"heads": 4},
        {"width": 12},
        {"feedforward": 20},
        {"vocabulary": 60},
        {"length": 50},
        {"segments": 3},
        {"segments": 0},
        {"root_norm": True},
        {"key_heads": 1},
        {"head_width": 3},
        {"positions": "none"},
        {"summary": "late"},
        {"distance_scores": 8},
        {"first_position": 2},
        {"embedding": 6},
        {"embedding": 6, "project_first": True},
        {"distinct": 1},
        {"embedding_norm": False},
        {"summary": "last"},
        {"scaled_outputs": True},
        {"pooling": "relu"},
        {"pooling": "gelu"},
        {"dropout": 0.5},
        {"attention_dropout": 0.5},
        {"activation": "relu"},
        {"activation": "gelu_tanh"},
        {"positions": "rotary"},
        {"positions": "rotary", "neighbours": 2.0},
        {"epsilon": 0.1},
        {"deviation": 0.3},
        {"normalization": "pre"},
        {"biases": False},
        {"gated": True},
        {"activation": "silu"},
        {"biases": False, "norm_biases": True},
        {"positions": "rotary", "rotary_base": 100.0},
        {"positions": "disentangled"},
        {"positions": "disentangled", "buckets": 4},
        {"positions": "disentangled", "buckets": 4, "farthest": 5},
        {"positions": "disentangled", "distance_projections": True},
        {"positions": "disentangled", "distance_norm": False},
        {"positions": "distances"},
        {"positions": "distances", "farthest": 3},
        {"positions": "distances", "segment_scores": True},
        {"window": 2, "global_every": 2},
        {"positions": "rotary", "window": 2, "global_every": 2, "local_base": 100.0},
        {"normalization": "pre", "first_norm": False},
        {"summary": "mean"},
        {"head_transform": True},
        {"head_biases": False},
        {"direction": "left_to_right"},
        {"recurrent": 1},
        {"adapters": 3},
    ],
    ids=lambda change: "-".join(f"{key}={value}" for key, value in change.items()),
)
def test_every_setting_changes_the_model(make_backbone, make_batch, change: dict[str, object]) -> None:
    batch = make_batch([7, 5, 5])
    quiet = {"dropout": 0.0, "attention_dropout": 0.0}

    def run(**settings: object) -> torch.Tensor:
        backbone = make_backbone(**(quiet | settings)).train()
        for name, weight in backbone.named_parameters():
            if name.endswith("bias"):
                weight.data += 0.1  # they start at 0
        torch.manual_seed(3)
        states = backbone(batch)
        return torch.cat([states.hidden.flatten(), states.pooled.flatten()])

    # By other settings, which are then those that change.
    needed = [("positions", one) for one in ("rotary", "disentangled", "distances")]
    needed += [("normalization", "pre"), ("biases", False)]
    needed += [("embedding", 6), *([("buckets", 4)] if {"buckets", "farthest"} <= change.keys() else [])]
    base = {name: value for name, value in needed if change.get(name) == value and len(change) > 1}
    before, after = run(**base), run(**change)
    assert before.shape != after.shape or not torch.allclose(before, after)


def test_every_setting_is_covered_by_the_test_above() -> None:
    marks = test_every_setting_changes_the_model.pytestmark
    tested = {key for mark in marks if mark.name == "parametrize" for change in mark.args[1] for key in change}
    tested |= {
        "piece_transform",
        "piece_activation",
        "tied",
        "scaled_pieces",
    }  # of the language-model heads: heads/test_predictions.py
    tested |= {"query_vector", "piece_biases"}  # of queries and their head: lab/autoregressive/test_xlnet.py
    tested |= {"tasks"}  # interop/huggingface/test_ernie.py
    tested |= {"memory"}  # of a learner's streams: ../test_memory.py
    assert tested == {field.name for field in dataclasses.fields(Architecture)}


@pytest.mark.parametrize("positions", POSITIONS)
def test_forward_is_the_last_of_layers_with_the_pooler(make_backbone, make_batch, positions: str) -> None:
    backbone, batch = make_backbone(positions=positions), make_batch([6, 3, 3])
    layers = list(backbone.layers(batch))
    states = backbone(batch)
    assert len(layers) == 3
    assert torch.equal(layers[0], backbone.embeddings(batch))
    assert torch.equal(layers[-1], states.hidden)
    assert torch.equal(states.summary, states.hidden[[0, 6, 9]])
    expected = torch.tanh(states.summary @ backbone.pooler.weight.T + backbone.pooler.bias)
    torch.testing.assert_close(states.pooled, expected)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_left_to_right_model_sees_what_one_of_ordered_tokens_sees(make_backbone, make_batch, positions: str) -> None:
    leftward = make_backbone(positions=positions, direction="left_to_right")
    both = make_backbone(positions=positions)
    lengths = [6, 6, 3]
    plain, ordered = make_batch(lengths), make_batch(lengths, order="causal")
    assert plain.order is None
    states = leftward(plain)
    assert torch.equal(states.hidden, both(ordered).hidden)
    assert torch.equal(leftward(ordered).hidden, states.hidden)
    given = make_batch(lengths, order="random")  # an order that a batch brings along holds
    assert torch.equal(leftward(given).hidden, both(given).hidden)


def test_the_summary_is_the_last_token_where_each_sees_only_what_is_before_it(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(direction="left_to_right"), make_batch([6, 3, 3])
    states = backbone(batch)
    assert torch.equal(states.summary, states.hidden[[5, 8, 11]])
    expected = torch.tanh(states.summary @ backbone.pooler.weight.T + backbone.pooler.bias)
    torch.testing.assert_close(states.pooled, expected)


def test_neighbouring_layers_share_distinct_blocks(make_backbone, make_batch) -> None:
    """ALBERT: a model of shared blocks is one of own blocks that are equal, and its gradients are their sums."""
    shared = make_backbone(layers=4, distinct=2)
    own = make_backbone(layers=4)
    with torch.no_grad():
        for module, source in [*zip(own.depth, shared.depth), (own.embeddings, shared.embeddings)]:
            module.load_state_dict(source.state_dict())
    batch = make_batch([7, 5, 5])
    for one, other in zip(shared.layers(batch), own.layers(batch), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(shared.weights(batch), own.weights(batch), strict=True):
        assert all(map(torch.equal, one, other))
    for backbone in (shared, own):
        backbone(batch).hidden.square().sum().backward()
    for number, block in enumerate(shared.blocks):
        for name, weight in block.named_parameters():
            total = sum(own.blocks[2 * number + place].get_parameter(name).grad for place in range(2))
            torch.testing.assert_close(weight.grad, total, rtol=1e-4, atol=1e-4)
    size = StepSize(tokens=17, pairs=99, sequences=3, labels={}, read=3, read_pairs=17)
    assert shared.flops(size) == own.flops(size)
    assert len(shared.stack) == len(own.stack) == 5 and len({*shared.stack}) == 3


@pytest.mark.parametrize("direction", ["both", "left_to_right"])
def test_the_summary_is_the_token_that_the_settings_name(make_backbone, make_batch, direction: str) -> None:
    batch = make_batch([6, 3, 3])
    other = {"both": "last", "left_to_right": "first"}[direction]
    places = {"first": [0, 6, 9], "last": [5, 8, 11]}
    states = make_backbone(direction=direction, summary=other)(batch)
    assert torch.equal(states.summary, states.hidden[places[other]])


def test_scaled_outputs_start_smaller_by_the_root_of_twice_the_layers(make_backbone) -> None:
    """GPT-2, section 2.3: 1 / sqrt(N) for N residual layers, two in each block."""
    plain, scaled = make_backbone(layers=2), make_backbone(layers=2, scaled_outputs=True)
    for (name, one), other in zip(plain.named_parameters(), scaled.parameters(), strict=True):
        least = name.endswith(("attention.outward.weight", "down.weight"))
        assert torch.equal(one / 2 if least else one, other), name


def test_training_is_random_and_repeats_with_the_seed(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone().train(), make_batch([6, 6, 4])

    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return backbone(batch).hidden

    assert torch.equal(run(5), run(5))
    assert not torch.equal(run(5), run(6))
    assert torch.equal(backbone.eval()(batch).hidden, backbone(batch).hidden)


@settings(deadline=None, max_examples=25)
@given(lengths=lengths, seed=seeds, positions=st.sampled_from(POSITIONS), data=st.data())
def test_permuting_sequences_permutes_outputs(make_backbone, make_examples, lengths, seed, positions, data) -> None:
    backbone, examples = make_backbone(positions=positions), make_examples(lengths, seed=seed)
    shuffled = data.draw(st.permutations(examples))
    assert_same_by_record(backbone, collate(examples), collate(shuffled))


@settings(deadline=None, max_examples=25)
@given(lengths=lengths, seed=seeds, order=st.sampled_from(["none", "causal", "random"]))
def test_a_sequence_does_not_feel_its_neighbours(make_backbone, make_examples, lengths, seed, order) -> None:
    backbone, examples = make_backbone(), make_examples(lengths, seed=seed, order=order)
    together = by_record(backbone, collate(examples))
    for example in examples:
        alone = backbone(collate([example])).hidden
        torch.testing.assert_close(alone, together[example.record], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_attention_rule_holds_through_all_layers(make_backbone, make_batch, positions: str) -> None:
    """Changing a token changes nothing that is revealed before it, and something that is not."""
    backbone, batch = make_backbone(positions=positions), make_batch([9], order="causal")
    before = backbone(batch).hidden
    ids = batch.ids.clone()
    ids[5] = (ids[5] + 1) % 50
    after = backbone(dataclasses.replace(batch, ids=ids)).hidden
    assert torch.equal(before[:5], after[:5])
    assert torch.all((before[5:] - after[5:]).abs().amax(dim=1) > 1e-4)


def test_weights_are_those_of_the_rule(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(), make_batch([5, 4], order="causal")
    found = list(backbone.weights(batch))
    assert [[tuple(one.shape) for one in layer] for layer in found] == [[(2, 5, 5), (2, 4, 4)]] * 2
    for layer in found:
        for one in layer:
            torch.testing.assert_close(one.sum(dim=-1), torch.ones(one.shape[:2]))
            assert torch.all(one.triu(diagonal=1) == 0)


@pytest.mark.parametrize(
    "changes", [{}, {"positions": "rotary", "key_heads": 1, "biases": False}, {"normalization": "pre"}]
)
def test_the_heads_vectors_make_the_weights_and_the_output(make_backbone, make_batch, changes) -> None:
    """Kobayashi et al. 2020, equation 3: the output is the sum over heads and keys of a f(x), and the bias."""
    backbone, batch = make_backbone(**changes), make_batch([5])
    states = list(backbone.layers(batch))
    layers = zip(backbone.depth, states, backbone.weights(batch, states), backbone.head_vectors(batch, states))
    for block, hidden, [weights], vectors in layers:
        scores = torch.einsum("qhk,shk->hqs", vectors.queries, vectors.keys) / vectors.keys.shape[-1] ** 0.5
        torch.testing.assert_close(scores.softmax(dim=-1), weights)
        parts = torch.einsum("shk,hkd->shd", vectors.values, vectors.outputs)
        mixed = torch.einsum("hqs,shd->qd", weights, parts)
        bias = block.attention.outward.bias
        seen = block.attention(block.attention_norm(hidden) if block.before else hidden, backbone.layout(batch))
        torch.testing.assert_close(mixed if bias is None else mixed + bias, seen, rtol=1e-4, atol=1e-5)
        assert not vectors.is_biased


def by_record(backbone, batch) -> dict[int, torch.Tensor]:
    parts = backbone(batch).hidden.split(batch.lengths)
    return dict(zip(batch.records.tolist(), parts, strict=True))


def assert_same_by_record(backbone, one, other) -> None:
    first, second = by_record(backbone, one), by_record(backbone, other)
    assert first.keys() == second.keys()
    for record in first:
        torch.testing.assert_close(first[record], second[record], rtol=1e-4, atol=1e-4)
