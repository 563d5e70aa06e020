"""The head of sparse vectors: its loss is that of sentence-transformers, with the penalty, in any number of passes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.forms import VectorLoss
from osbert.models.heads.contrastive import VectorComparison
from osbert.models.heads.splade import SCORED, SpladeHead, pool_pieces


def laid_out(negatives: int, loss: VectorLoss = "in_batch") -> Batch:
    """Return five records with a token a sequence, sides one after the other; a teacher's margins as labels."""
    no, examples = np.zeros(1, np.bool_), []
    for side in range(2 + negatives):
        for record in range(5):
            scores = [round(3 * float(np.sin(7 * record + 2 * place)), 3) for place in range(1 + negatives)]
            label = scores[0] - scores[side - 1] if side > 1 else 0.0
            labels = np.array([int(side > 1)]) if loss == "in_batch" else np.array([label], np.float32)
            weight = float((side > 1) if loss == "margin_mse" else side == 0)
            targets = {"own": Target(labels=labels, weights=np.array([weight], np.float32))} if side != 1 else {}
            ids = np.array([5 * side + record])
            examples.append(Example(ids=ids, segments=ids * 0, words=no, special=no, record=record, targets=targets))
    return collate(examples)


def headed(loss: VectorLoss = "in_batch", pooling: str = "splade") -> tuple[Learner, SpladeHead]:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=8, vocabulary=50, length=8, deviation=0.5).build()
    comparison = VectorComparison(target="own", temperature=1.0, loss=loss)
    head = SpladeHead(backbone, comparison=comparison, pooling=pooling, query_flops=0.05, document_flops=0.03)
    return Learner(backbone, {"own": head}), head


@pytest.mark.parametrize(
    ("loss", "negatives", "expected", "bare"),
    [
        ("in_batch", 0, 1.8127694129943848, 1.6932508945465088),
        ("in_batch", 1, 2.5496251583099365, 2.4316086769104004),
        ("margin_mse", 3, 10.12444019317627, 10.018887519836426),
        ("kl", 3, 0.8824365139007568, 0.7768840193748474),
    ],
)
def test_the_loss_is_that_of_sentence_transformers(
    loss: VectorLoss, negatives: int, expected: float, bare: float
) -> None:
    """SpladeLoss over SparseMultipleNegativesRanking, SparseMarginMSE and SparseDistillKLDivLoss, in version 6.2."""
    _, head = headed(loss)
    numbers = torch.arange(60, dtype=torch.float64).reshape(5, 12)
    sides = (0.1, 0.45, 0.9, 1.3, 1.7)[: 2 + negatives]
    outputs = torch.cat([torch.sin(numbers * (1.7 + shift) + shift).float().relu() for shift in sides])
    batch = laid_out(negatives, loss)
    values = []
    # The penalty grows with the square of the steps, until a third of them.
    for done in (0.0, 1 / 6, 1 / 3, 1.0):
        head.begin_step(done)
        found = head.compare(outputs, batch)
        values.append(found.total.item() / found.count)
    assert values == pytest.approx([bare, bare + (expected - bare) / 4, expected, expected], rel=1e-5)
    assert float(found.ratios["active_pieces"][0]) == int((outputs > 0).sum())


@pytest.mark.parametrize("pooling", ["splade", "splade_sum", "splade_log", "splade_log_sum"])
def test_vectors_are_those_of_the_logits_of_each_text(pooling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.models.heads.splade.SCORED", 4)
    assert SCORED > 4
    lengths, table = (5, 6, 1, 3), torch.randn(8, 50, generator=torch.Generator().manual_seed(0))
    hidden = torch.randn(15, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
    found = torch.stack([*pool_pieces(hidden, lengths, lambda states: states @ table, pooling)])
    weights = torch.log1p(torch.relu(hidden @ table))
    weights = torch.log1p(weights) if "log" in pooling else weights
    parts = weights.split(lengths)
    plain = torch.stack([part.sum(0) if pooling.endswith("sum") else part.amax(0) for part in parts])
    torch.testing.assert_close(found, plain)
    gradients = [
        torch.autograd.grad((each * each.cos()).sum(), hidden, retain_graph=True)[0] for each in (found, plain)
    ]
    torch.testing.assert_close(*gradients)
    with torch.no_grad():  # the same numbers without a gradient
        torch.testing.assert_close(
            torch.stack([*pool_pieces(hidden, lengths, lambda states: states @ table, pooling)]), plain
        )


def test_several_passes_have_the_gradient_of_one() -> None:
    learner, head = headed()
    learner.eval()
    gradients = []
    for pass_tokens in (0, 4):
        learner.zero_grad()
        batch = dataclasses.replace(laid_out(1), whole=True, pass_tokens=pass_tokens)
        learner(batch)["own"].total.backward()
        gradients.append([weight.grad.clone() for weight in learner.parameters() if weight.grad is not None])
    assert len(gradients[0]) > 5 and head.bias.grad is not None
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
