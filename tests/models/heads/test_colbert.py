"""The head of many vectors a text: its loss is that of PyLate, in any number of passes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.data.late_interaction import LateInteraction
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.forms import VectorLoss
from osbert.models.heads.colbert import ColbertHead, MaxSim
from osbert.models.heads.contrastive import VectorComparison

WIDTH, SKIPPED = 6, 7


def length_of(record: int, side: int) -> int:
    return 3 + (record + side) % 4 if side else 4


def laid_out(negatives: int, loss: VectorLoss = "in_batch") -> Batch:
    """Return five records: a query of 4 tokens, and documents of 3 to 6, whose second token has no vector."""
    examples = []
    for side in range(2 + negatives):
        for record in range(5):
            n = length_of(record, side)
            ids, no = np.full(n, 10 + 5 * side + record), np.zeros(n, np.bool_)
            if side:
                ids[1] = SKIPPED
            labels = np.array([int(side > 1)]) if loss == "in_batch" else np.array([0.3 * record], np.float32)
            weight = float((side > 1) if loss == "margin_mse" else side == 0)
            targets = {"own": Target(labels=labels, weights=np.array([weight], np.float32))} if side != 1 else {}
            columns = {"ids": ids, "segments": ids * 0, "words": no, "special": no, "head_words": ids != SKIPPED}
            examples.append(Example(**columns, record=record, targets=targets))
    return collate(examples)


def token_vectors(batch: Batch) -> torch.Tensor:
    """Return vectors (N, 6) of the tokens of a batch, each a function of its record, side and place."""
    rows = []
    for ids in batch.ids.split(list(batch.lengths)):
        side, record = divmod(int(ids[0]) - 10, 5)
        numbers = torch.arange(len(ids) * WIDTH, dtype=torch.float64).reshape(len(ids), WIDTH)
        sine = 1.5 + torch.sin(1.3 * numbers + 2 * record + 5 * side + 0.1 * record * numbers)
        rows.append(torch.nn.functional.normalize(sine.float() ** 3, dim=-1))
    return torch.cat(rows)


def headed(loss: VectorLoss = "in_batch", temperature: float = 1.0) -> tuple[Learner, ColbertHead]:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=8, vocabulary=50, length=8, deviation=0.5).build()
    comparison = VectorComparison(target="own", temperature=temperature, loss=loss)
    head = ColbertHead(backbone, comparison=comparison, width=WIDTH, late=LateInteraction(), skipped=())
    return Learner(backbone, {"own": head}), head


@pytest.mark.parametrize(
    ("negatives", "temperature", "expected"),
    [
        (0, 1.0, 1.6299835443496704),
        (0, 0.25, 2.31488299369812),
        (1, 1.0, 2.4331583976745605),
        (2, 1.0, 2.893470048904419),
        (2, 0.25, 4.014132022857666),
    ],
)
def test_the_loss_is_that_of_pylate(negatives: int, temperature: float, expected: float) -> None:
    """Contrastive of PyLate 1.6.0, with query expansion and a skip list of one piece.

    There a skipped token has the product 0, which can be the largest one; here all products are above 0.
    """
    _, head = headed(temperature=temperature)
    batch = laid_out(negatives)
    loss = head.compare(token_vectors(batch), batch)
    assert loss.total.item() / loss.count == pytest.approx(expected, abs=1e-5)


def test_scores_are_sums_of_largest_products() -> None:
    batch = laid_out(1)
    vectors = token_vectors(batch)
    texts = [
        part[ids != SKIPPED] for part, ids in zip(vectors.split(list(batch.lengths)), batch.ids.split(batch.lengths))
    ]
    first, others = torch.tensor([2, 0, 7]), torch.tensor([1, 4, 9])
    plain = [[float((texts[i] @ texts[j].T).amax(dim=1).sum()) for j in others.tolist()] for i in first.tolist()]
    scores = MaxSim(vectors, batch)
    blocks = [compute().numpy() for compute in scores.blocks(first, others, 2)]
    assert [len(block) for block in blocks] == [2, 1]
    np.testing.assert_allclose(np.concatenate(blocks), plain, atol=1e-5)
    np.testing.assert_allclose(scores.pairs(first, others).numpy(), np.diag(plain), atol=1e-5)


@pytest.mark.parametrize("loss", ["in_batch", "margin_mse", "kl"])
def test_several_passes_have_the_gradient_of_one(loss: VectorLoss) -> None:
    learner, head = headed(loss)
    learner.eval()
    gradients = []
    for pass_tokens in (0, 9):
        learner.zero_grad()
        batch = dataclasses.replace(laid_out(1, loss), whole=True, pass_tokens=pass_tokens)
        learner(batch)["own"].total.backward()
        gradients.append([weight.grad.clone() for weight in learner.parameters() if weight.grad is not None])
    assert len(gradients[0]) > 5 and head.projection.weight.grad is not None
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
