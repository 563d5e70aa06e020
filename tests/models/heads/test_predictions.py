"""The heads: equality with the plain formulas, weights, and where gradients go."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from osbert.data.batch import BatchTarget
from osbert.models.adapting.additions import add_pieces
from osbert.models.contract import Learner
from osbert.models.heads.predictions import (
    LabelsHead,
    MaskedLanguageHead,
    NumberHead,
    SequenceHead,
    classification_loss,
    ordinal_loss,
    soft_loss,
)


def labelled(batch, **targets: BatchTarget):
    return replace(batch, targets=targets)


def per_sequence(labels, index, weights=None) -> BatchTarget:
    labels = torch.tensor(labels)
    weights = None if weights is None else torch.tensor(weights)
    count = float(len(labels)) if weights is None else float(weights.sum())
    return BatchTarget(labels=labels, index=torch.tensor([*index]), per_token=False, weights=weights, count=count)


@settings(max_examples=20)
@given(lengths=st.lists(st.integers(1, 10), min_size=1, max_size=4), seed=st.integers(0, 999), masked=st.integers(1, 4))
def test_masked_language_head_is_all_positions_then_the_labelled_ones(
    make_backbone, make_batch, lengths, seed, masked
) -> None:
    backbone, batch = make_backbone(), make_batch(lengths, seed=seed, masked=masked)
    head = MaskedLanguageHead(backbone).eval()
    states, target = backbone(batch), batch.targets["mlm"]
    everywhere = head.scores(states.hidden)  # (N, V)
    torch.testing.assert_close(head.outputs(states, batch), everywhere[target.index], rtol=1e-4, atol=1e-5)
    ignoring = torch.full((batch.tokens,), -100).index_put((target.index,), target.labels)
    expected = functional.cross_entropy(everywhere, ignoring, ignore_index=-100, reduction="sum")
    loss = head(states, batch)
    torch.testing.assert_close(loss.total, expected, rtol=1e-4, atol=1e-4)
    assert loss.count == len(target.labels)
    assert loss.hits == (everywhere.argmax(dim=1) == ignoring).sum()


def test_a_language_head_without_a_transform_is_the_product_with_the_pieces(make_backbone, make_batch) -> None:
    """GPT, section 3.1: softmax(h W_e^T)."""
    backbone, batch = make_backbone(piece_transform=False, direction="left_to_right"), make_batch([7, 3], masked=2)
    head = MaskedLanguageHead(backbone)
    assert not head.state_dict() and not list(head.parameters())
    states, target = backbone(batch), batch.targets["mlm"]
    scores = states.hidden @ backbone.embeddings.pieces.weight.T
    torch.testing.assert_close(head.scores(states.hidden), scores)
    expected = functional.cross_entropy(scores[target.index], target.labels, reduction="sum")
    loss = head(states, batch)
    torch.testing.assert_close(loss.total, expected)
    wanted = torch.autograd.grad(expected, backbone.embeddings.pieces.weight, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss.total, backbone.embeddings.pieces.weight), wanted)
    assert head.flops(3) == 2 * 3 * 50 * 16


def test_a_language_head_may_have_a_table_of_its_own(make_backbone, make_batch) -> None:
    """EuroBERT: no gradient reaches the embeddings by way of the scores."""
    backbone, batch = make_backbone(piece_transform=False, tied=False), make_batch([7, 3], masked=2)
    head = MaskedLanguageHead(backbone)
    assert head.table is not None and [*head.state_dict()] == ["table.weight"]
    states, target = backbone(batch), batch.targets["mlm"]
    scores = states.hidden @ head.table.weight.T
    torch.testing.assert_close(head.scores(states.hidden), scores)
    expected = functional.cross_entropy(scores[target.index], target.labels, reduction="sum")
    head(states, batch).total.backward()
    (wanted,) = torch.autograd.grad(expected, head.table.weight)
    torch.testing.assert_close(head.table.weight.grad, wanted)
    assert head.flops(3) == 2 * 3 * 50 * 16
    learner = Learner(backbone, {"mlm": head})
    add_pieces(learner, [[5, 7], [6]])
    torch.testing.assert_close(head.table.weight[50], head.table.weight[[5, 7]].mean(dim=0))
    assert len(head.table.weight) == len(backbone.embedding.weight) == 52


def test_masked_language_head_shares_the_piece_embeddings(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(), make_batch([5], masked=1)
    learner = Learner(backbone, {"mlm": MaskedLanguageHead(backbone)})
    assert "heads.mlm.bias" in learner.state_dict()
    shapes = [tuple(value.shape) for value in learner.state_dict().values()]
    assert shapes.count((50, 16)) == 1
    learner(batch)["mlm"].total.backward()
    # A piece that is nowhere in the batch learns only through the vocabulary product.
    absent = next(piece for piece in range(50) if piece not in batch.ids.tolist())
    assert backbone.embeddings.pieces.weight.grad[absent].abs().max() > 0


def test_a_copied_learner_keeps_its_own_tie(make_backbone, make_batch) -> None:
    from copy import deepcopy

    backbone = make_backbone()
    learner = Learner(backbone, {"mlm": MaskedLanguageHead(backbone)})
    twin = deepcopy(learner)
    assert twin.heads["mlm"].tied[0] is twin.backbone.embeddings.pieces
    assert twin.heads["mlm"].tied[0] is not backbone.embeddings.pieces


def test_the_bias_starts_from_log_unigrams(make_backbone, make_batch) -> None:
    backbone = make_backbone(deviation=1e-6)
    unigrams = torch.rand(50, generator=torch.Generator().manual_seed(0)).log_softmax(dim=0)
    head = MaskedLanguageHead(backbone)
    head.bias.data.copy_(unigrams)
    batch = make_batch([9, 8], masked=4)
    loss = head(backbone(batch), batch)
    expected = -unigrams[batch.targets["mlm"].labels].sum()
    torch.testing.assert_close(loss.total, expected, rtol=1e-4, atol=1e-4)
    assert torch.all(MaskedLanguageHead(backbone).bias == 0)


def test_weights_are_shares_of_the_sum(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(), make_batch([5, 4, 3])
    head = SequenceHead(backbone, target="topic", labels=3).eval()
    weighted = labelled(batch, topic=per_sequence([0, 2], [2, 0], [0.25, 2.0]))
    states = backbone(batch)
    loss = head(states, weighted)
    each = functional.cross_entropy(head.outputs(states, batch)[[2, 0]], torch.tensor([0, 2]), reduction="none")
    torch.testing.assert_close(loss.total, 0.25 * each[0] + 2 * each[1])
    assert loss.count == 2.25


def test_regression_is_squared_error(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(), make_batch([5, 4, 3])
    head = NumberHead(backbone, target="score").eval()
    states = backbone(batch)
    outputs = head.outputs(states, batch)
    assert outputs.shape == (3, 1)
    plain = head(states, labelled(batch, score=per_sequence([0.5, -1.0, 2.0], [0, 1, 2])))
    torch.testing.assert_close(plain.total, ((outputs[:, 0] - torch.tensor([0.5, -1.0, 2.0])) ** 2).sum())
    assert plain.hits is None
    weighted = head(states, labelled(batch, score=per_sequence([0.5, 2.0], [0, 2], [1.0, 0.0])))
    torch.testing.assert_close(weighted.total, (outputs[0, 0] - 0.5) ** 2)
    assert head.linear.out_features == 1


def test_neighbours_of_an_ordered_label_have_a_part_of_its_probability() -> None:
    scores = torch.zeros(2, 3).index_fill(1, torch.tensor([2]), 1.0)
    truth = torch.tensor([[1, torch.e**-1, torch.e**-4], [torch.e**-1, 1, torch.e**-1]])
    each = -(truth / truth.sum(dim=1, keepdim=True) * scores.log_softmax(dim=1)).sum(dim=1)
    plain = ordinal_loss(scores, per_sequence([0, 1], [0, 1]))
    torch.testing.assert_close(plain.total, each.sum())
    assert plain.count == 2 and plain.hits == 0
    weighted = ordinal_loss(scores, per_sequence([0, 1], [0, 1], [0.5, 2.0]))
    torch.testing.assert_close(weighted.total, 0.5 * each[0] + 2 * each[1])


@pytest.mark.parametrize("weights", [None, [0.5, 2.0]])
def test_the_generalised_cross_entropy_is_its_formula(weights: list[float] | None) -> None:
    scores = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    right = scores.softmax(dim=1)[[0, 1], [0, 2]]
    each = (1 - right**0.7) / 0.7 * torch.tensor(weights or [1.0, 1.0])
    loss = classification_loss(scores, per_sequence([0, 2], [0, 1], weights), robust=0.7)
    torch.testing.assert_close(loss.total, each.sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_soft_targets_are_torchs_cross_entropy_with_probabilities(make_backbone, make_batch, smoothing: float) -> None:
    backbone, batch = make_backbone(), make_batch([5, 4, 3])
    head = SequenceHead(backbone, target="topic", labels=3).eval()
    head.stride, head.loss = 3, partial(soft_loss, smoothing=smoothing)
    truth = [[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]]
    flat = [number for row in truth for number in row]
    states = backbone(batch)
    loss = head(states, labelled(batch, topic=per_sequence(flat, [2, 2, 2, 0, 0, 0], flat)))
    scores, probabilities = head.outputs(states, batch)[[2, 0]], torch.tensor(truth)
    expected = functional.cross_entropy(scores, probabilities, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == pytest.approx(2)
    # Over the six targets it is the mean probability of the predicted classes.
    assert loss.hits / 6 == pytest.approx(float(probabilities[[0, 1], scores.argmax(dim=1)].mean()))


@pytest.mark.parametrize("settings", [{}, {"smoothing": 0.2}, {"gamma": 2.0}, {"ordered": True}, {"robust": 0.7}])
def test_a_soft_target_of_one_class_is_that_class(settings: dict[str, Any]) -> None:
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    labels, weights = torch.tensor([0, 2, 1, 1]), torch.tensor([1.0, 0.5, 2.0, 2.0])
    hard = per_sequence(labels.tolist(), range(4), weights.tolist())
    one_hot = functional.one_hot(labels, 3).float()
    index = torch.arange(4).repeat_interleave(3)
    soft = BatchTarget(
        labels=one_hot.flatten(),
        index=index,
        per_token=False,
        weights=(one_hot * weights[:, None]).flatten(),
        count=float(weights.sum()),
    )
    expected = ordinal_loss(scores, hard) if settings.get("ordered") else classification_loss(scores, hard, **settings)
    loss = soft_loss(scores, soft, **settings)
    torch.testing.assert_close(loss.total, expected.total)
    assert loss.count == expected.count and loss.hits == 3 * expected.hits


def scored(labels: list[int], weights: list[float] | None = None) -> tuple[torch.Tensor, BatchTarget]:
    """Return scores (n, 3), of which the first is sure, with a target for each."""
    scores = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(1))
    scores[0] = torch.tensor([200.0, -200.0, 0.0])
    return scores.requires_grad_(), per_sequence(labels, range(len(labels)), weights)


@pytest.mark.parametrize("weights", [None, [1.0, 0.25, 2.0, 1.0]])
def test_a_loss_without_smoothing_or_focus_is_the_cross_entropy_to_the_bit(weights: list[float] | None) -> None:
    scores, target = scored([0, 1, 2, 1], weights)
    each = functional.cross_entropy(scores, target.labels, reduction="none")
    plain = functional.cross_entropy(scores, target.labels, reduction="sum") if weights is None else None
    expected = plain if weights is None else (each * target.weights).sum()
    assert torch.equal(classification_loss(scores, target).total, expected)


@pytest.mark.parametrize("weights", [None, [1.0, 0.25, 2.0, 1.0]])
def test_smoothing_is_torchs_of_each_row(weights: list[float] | None) -> None:
    scores, target = scored([0, 1, 2, 1], weights)
    each = functional.cross_entropy(scores, target.labels, label_smoothing=0.1, reduction="none")
    expected = (each * (torch.ones(4) if weights is None else target.weights)).sum()
    torch.testing.assert_close(classification_loss(scores, target, smoothing=0.1).total, expected)
    smooth = torch.full((4, 3), 0.1 / 3).scatter_add_(1, target.labels[:, None], torch.full((4, 1), 0.9))
    torch.testing.assert_close(each, -(smooth * scores.log_softmax(dim=1)).sum(dim=1))


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("weights", [None, [1.0, 0.25, 2.0, 1.0]])
def test_focal_loss_is_its_equation(gamma: float, weights: list[float] | None) -> None:
    """Lin et al. 2017, equations 4 and 5; a row that is sure has a loss of 0 and a finite gradient."""
    scores, target = scored([0, 1, 2, 1], weights)
    loss = classification_loss(scores, target, gamma=gamma)
    right = scores.double().softmax(dim=1).gather(1, target.labels[:, None])[:, 0]
    each = -((1 - right) ** gamma) * right.log()
    expected = (each * (torch.ones(4) if weights is None else target.weights)).sum()
    torch.testing.assert_close(loss.total, expected.float())
    (found,) = torch.autograd.grad(loss.total, scores, retain_graph=True)
    assert torch.isfinite(found).all() and loss.count == target.count
    rest = torch.autograd.grad(expected, scores)[0][1:]  # of the sure row the plain equation has 0 / 0
    torch.testing.assert_close(found[1:], rest, rtol=1e-4, atol=1e-6)


def test_several_labels_are_torchs_binary_cross_entropy(make_backbone, make_batch) -> None:
    """With weights of the positive labels the sum is that of torch's pos_weight."""
    backbone, batch = make_backbone(), make_batch([5, 4, 3])
    head = LabelsHead(backbone, target="topics", labels=2).eval()
    states = backbone(batch)
    rows, truth = [0, 0, 2, 2], [1, 0, 1, 1]
    plain = head(states, labelled(batch, topics=per_sequence(truth, rows)))
    scores, true = head.outputs(states, batch)[[0, 2]], torch.tensor(truth).view(2, 2).float()
    expected = functional.binary_cross_entropy_with_logits(scores, true, reduction="sum")
    torch.testing.assert_close(plain.total, expected)
    assert plain.count == 4 and plain.hits == ((scores > 0) == (true > 0)).sum()
    positives = torch.tensor([3.0, 0.5])
    weights = torch.where(true > 0, positives, 1.0).flatten().tolist()
    weighted = head(states, labelled(batch, topics=per_sequence(truth, rows, weights)))
    expected = functional.binary_cross_entropy_with_logits(scores, true, pos_weight=positives, reduction="sum")
    torch.testing.assert_close(weighted.total, expected)
    assert weighted.count == 3.0 + 1.0 + 3.0 + 0.5
    assert head.flops(4) == 2 * 2 * 2 * 16


def test_hits_count_right_answers(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(), make_batch([5, 4, 3])
    head = SequenceHead(backbone, target="nsp", form="nsp").eval()
    states = backbone(batch)
    best = head.outputs(states, batch).argmax(dim=1)
    labels = [int(best[0]), 1 - int(best[1]), int(best[2])]
    assert head(states, labelled(batch, nsp=per_sequence(labels, [0, 1, 2]))).hits == 2


def test_dropout_of_a_sequence_head_acts_in_training_only(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(), make_batch([5, 4, 3])
    head = SequenceHead(backbone, target="topic", labels=3, dropout=0.5)
    states = backbone(batch)
    assert not torch.equal(head.train().outputs(states, batch), head.outputs(states, batch))
    assert torch.equal(head.eval().outputs(states, batch), head.linear(states.pooled))


def test_loss_is_float32_under_bf16(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(), make_batch([9, 9, 5], masked=3)
    learner = Learner(backbone, {"mlm": MaskedLanguageHead(backbone)}).eval()
    exact = learner(batch)["mlm"].total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = backbone(batch)
        loss = learner.heads["mlm"](states, batch)
        assert learner.heads["mlm"].outputs(states, batch).dtype == torch.bfloat16
    assert loss.total.dtype == torch.float32
    assert loss.total.item() == pytest.approx(exact.item(), rel=0.05)


def test_micro_batches_add_up_to_the_large_batch(make_backbone, make_batch, make_examples) -> None:
    """Sums and counts, not means: uneven parts give the gradient of the whole."""
    from osbert.data.batch import collate
    from osbert.data.example import Target as Labels

    backbone = make_backbone()
    learner = Learner(backbone, {"mlm": MaskedLanguageHead(backbone)}).eval()
    examples = [
        replace(
            example, targets={"mlm": Labels(labels=example.ids[: 1 + place], index=torch.arange(1 + place).numpy())}
        )
        for place, example in enumerate(make_examples([4, 7, 5, 5]))
    ]
    count = collate(examples).targets["mlm"].count

    def gradient(*groups) -> torch.Tensor:
        learner.zero_grad()
        for group in groups:
            (learner(collate(group))["mlm"].total / count).backward()
        return torch.cat([parameter.grad.flatten() for parameter in learner.parameters() if parameter.grad is not None])

    whole = gradient(examples)
    parts = gradient(examples[:1], examples[1:])
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-5)
