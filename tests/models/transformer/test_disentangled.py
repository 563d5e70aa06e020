"""Disentangled attention: the buckets of distances, and the scores spelled out pair by pair."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from osbert.data.batch import Batch
from osbert.models.architecture import Architecture
from osbert.models.families.transformer import Transformer
from osbert.models.transformer.attention import distance_biases
from osbert.models.transformer.kernels import fastest, reference
from osbert.models.transformer.positions import distance_rows

SMALL = {"layers": 2, "heads": 2, "width": 16, "vocabulary": 50, "deviation": 0.3, "dropout": 0.0}


def backbone_of(**changes: object) -> Transformer:
    torch.manual_seed(0)
    sizes = {**SMALL, "positions": "disentangled", "buckets": 4, "farthest": 7, "attention_dropout": 0.0}
    return Architecture(**sizes | changes).build().eval()


@given(half=st.integers(1, 160), beyond=st.integers(2, 500))
def test_buckets_are_the_published_ones(half: int, beyond: int) -> None:
    buckets, farthest = 2 * half, half + beyond
    distances = torch.arange(-farthest - 200, farthest + 201)
    theirs = (make_log_bucket_position(distances, buckets, farthest).long() + buckets).clamp(0, 2 * buckets - 1)
    ours = distance_rows(buckets, farthest)[distances.clamp(-farthest, farthest) + farthest]
    assert torch.equal(ours, theirs)


def spelled_out(backbone: Transformer, hidden: Tensor, positions: Tensor) -> Tensor:
    """The weights (H, T, T) of one sequence in the first layer, score by score (He et al. 2021, equation 4)."""
    attention, sizes = backbone.blocks[0].attention, backbone.architecture
    table = backbone.embeddings.distances.norm(backbone.embeddings.distances.table.weight)
    rows = distance_rows(sizes.buckets, sizes.farthest)
    query, key, _ = attention.inward(hidden).chunk(3, dim=-1)
    if attention.distance_inward is None:
        of_query, of_key, _ = attention.inward(table).chunk(3, dim=-1)
    else:
        of_query, of_key = attention.distance_inward(table).chunk(2, dim=-1)
    query, key, of_query, of_key = (part.unflatten(-1, (2, 8)) for part in (query, key, of_query, of_key))
    scores = torch.zeros(2, len(hidden), len(hidden))
    for i in range(len(hidden)):
        for j in range(len(hidden)):
            distance = int((positions[i] - positions[j]).clamp(-sizes.farthest, sizes.farthest))
            row = rows[distance + sizes.farthest]
            for head in range(2):
                q, k, r_q, r_k = (query[i, head], key[j, head], of_query[row, head], of_key[row, head])
                scores[head, i, j] = (q @ k + q @ r_k + k @ r_q) / (3 * 8) ** 0.5
    return scores.softmax(dim=-1)


@pytest.mark.parametrize("changes", [{}, {"buckets": 0, "farthest": 3}, {"distance_projections": True}], ids=str)
@pytest.mark.parametrize("given_positions", [False, True])
def test_weights_are_the_equation(make_batch, changes: dict[str, object], given_positions: bool) -> None:
    """Up to lengths beyond the farthest distance."""
    backbone, batch = backbone_of(**changes), make_batch([11, 11, 3])
    if given_positions:
        batch = replace(batch, positions=batch.positions * 2 % 9)
    hidden, first = backbone.embeddings(batch), next(backbone.weights(batch))
    parts = zip(hidden.split(batch.lengths), batch.positions.split(batch.lengths), first, strict=True)
    for states, positions, found in parts:
        torch.testing.assert_close(found, spelled_out(backbone, states, positions))


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    order=st.sampled_from(["none", "causal", "random"]),
    changes=st.sampled_from([{}, {"distance_projections": True}, {"window": 2, "global_every": 2}]),
    dropout=st.sampled_from([0.0, 1e-9]),
    read=st.booleans(),
)
def test_every_kernel_gives_the_same_with_gradients(make_batch, lengths, order, changes, dropout, read) -> None:
    backbone, batch = backbone_of(**changes), make_batch(lengths, order=order, masked=1)
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


def test_biases_are_made_for_each_run_of_equal_lengths(make_batch) -> None:
    """No rectangle is of all the batch's tokens, and no vector is projected that the batch has no distance for."""
    backbone = backbone_of(buckets=256, farthest=512)
    batch: Batch = make_batch([9, 9, 4, 1])
    layout = backbone.layout(batch)
    assert [tuple(one.shape) for one in layout.offsets] == [(1, 9, 9), (1, 4, 4), (1, 1, 1)]
    assert layout.distances.vectors.shape == (17, 16)
    query, key, _ = backbone.blocks[0].attention.project(backbone.embeddings(batch), layout)
    _, biased = backbone.blocks[0].attention._with_distances(query, key, layout)
    assert [tuple(bias.shape) for bias in biased.biases] == [(2, 2, 9, 9), (1, 2, 4, 4), (1, 2, 1, 1)]
    assert biased.runs is layout.runs


@pytest.mark.parametrize("dropped", [0, 5])
def test_each_distance_by_itself_gives_what_shared_vectors_give(make_batch, dropped: int) -> None:
    """As on a GPU in training; also where some tokens alone have queries."""
    backbone, batch = backbone_of(), make_batch([12, 12, 5])
    layout, attention = backbone.layout(batch), backbone.blocks[0].attention
    if dropped:
        layout = layout.reading(torch.arange(batch.tokens)[dropped:], (12 - dropped, 12, 5))
    query, key, _ = attention.project(backbone.embeddings(batch), layout)
    of_distances = attention.project_distances(layout.distances.vectors)
    found = [distance_biases(query, key, of_distances, layout, each=each) for each in (False, True)]
    gradients = []
    for one in found:
        total = sum(bias.square().sum() for bias in one.biases)
        gradients.append(torch.autograd.grad(total, [*backbone.embeddings.distances.parameters()], retain_graph=True))
    for one, other in zip(*(layout.biases for layout in found), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_in_bf16_the_cpu_scores_in_float32(make_batch) -> None:
    backbone, batch = backbone_of(), make_batch([9, 9, 4])
    exact = backbone(batch).hidden
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = backbone(batch).hidden
    torch.testing.assert_close(found.float(), exact, rtol=0.1, atol=0.1)
