"""The contrastive head against plain loops: which sequences belong together, and the loss of finding one's own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate, halves, passes
from osbert.data.example import Example, Target
from osbert.data.examples import Examples
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.forms import VectorLoss
from osbert.models.heads import contrastive
from osbert.models.heads.contrastive import ContrastiveHead, VectorComparison, alike_texts, partners
from osbert.training import adamw
from osbert.training.progress import Census

RECORDS = {7: (3, 6), 2: (5, 4), 5: (6, 6), 9: (2, 3)}
"""The lengths of the two texts of each record."""


def compared(*, temperature: float = 0.05, loss: VectorLoss = "in_batch") -> VectorComparison:
    return VectorComparison(target="own", temperature=temperature, loss=loss)


@pytest.fixture
def batch() -> Batch:
    rng = np.random.default_rng(0)
    examples = []
    for record, lengths in RECORDS.items():
        for side, n in enumerate(lengths):
            no = np.zeros(n, np.bool_)
            targets = {} if side else {"own": Target(labels=np.zeros(1, np.int64))}
            ids = rng.integers(5, 50, n)
            segments = np.zeros(n, np.int64)
            examples.append(Example(ids=ids, segments=segments, words=no, special=no, record=record, targets=targets))
    return collate(examples)


def test_a_text_and_its_partner_are_of_one_record(batch: Batch) -> None:
    first = batch.targets["own"].index
    second = partners(batch, first)
    assert (batch.records[first] == batch.records[second]).all()
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(8))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_loss_is_that_of_finding_ones_own_among_all(batch: Batch, pooling) -> None:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=8, vocabulary=50, length=8).build()
    head = ContrastiveHead(backbone, comparison=compared(), pooling=pooling)
    learner = Learner(backbone, {"own": head}).eval()
    loss = learner(batch)["own"]
    states = backbone(batch).hidden.split(list(batch.lengths))
    vectors = {}
    for place, record in enumerate(batch.records.tolist()):
        vector = states[place][0] if pooling == "cls" else states[place].mean(dim=0)
        projected = torch.tanh(head.dense(vector)).detach()
        side = int(place not in batch.targets["own"].index.tolist())
        vectors[record, side] = projected / projected.norm()
    total, hits = 0.0, 0
    for record in RECORDS:
        scores = {other: float(vectors[record, 0] @ vectors[other, 1]) / 0.05 for other in RECORDS}
        total += np.log(sum(np.exp(score) for score in scores.values())) - scores[record]
        hits += max(scores, key=scores.__getitem__) == record
    assert loss.total.item() == pytest.approx(total, rel=1e-4)
    assert (loss.count, int(loss.hits)) == (4, hits)


def test_a_hard_negative_is_one_of_every_record(batch: Batch) -> None:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=8, vocabulary=50, length=8).build()
    head = ContrastiveHead(backbone, comparison=compared(), pooling="cls")
    learner = Learner(backbone, {"own": head}).eval()
    first = batch.targets["own"].index
    second = partners(batch, first)
    vectors = torch.nn.functional.normalize(torch.tanh(head.dense(head.outputs(backbone(batch), batch))), dim=-1)
    # The last record is taken apart: both its texts are negatives of the other three.
    negatives = torch.stack([first[-1], second[-1]])
    index, labels = torch.cat([first[:-1], negatives]), torch.tensor([0, 0, 0, 1, 1])
    target = dataclasses.replace(batch.targets["own"], index=index, labels=labels, count=3.0)
    loss = learner(dataclasses.replace(batch, targets={"own": target}))["own"]
    scores = vectors[first[:-1]] @ vectors[torch.cat([second[:-1], negatives])].T / 0.05
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(3), reduction="sum")
    assert loss.total.item() == pytest.approx(expected.item(), rel=1e-4) and loss.count == 3


def test_a_step_that_must_stay_whole_has_no_halves(batch: Batch) -> None:
    assert len(halves(batch)) == 2
    whole = dataclasses.replace(batch, whole=True)
    assert halves(whole) == [whole]
    # With passes it has smaller ones, until each has one sequence.
    sizes = [(whole := dataclasses.replace(whole, pass_tokens=64)).pass_size]
    while (smaller := halves(whole)[0]) is not whole:
        whole = smaller
        sizes.append(whole.pass_size)
    assert sizes == [35, 17, 8, 6] and sum(len(part.lengths) for part in passes(whole)) == 8


def vectors(shift: float) -> torch.Tensor:
    numbers = torch.arange(60, dtype=torch.float64).reshape(5, 12)
    return torch.sin(numbers * (1.7 + shift) + shift).float()


def laid_out(negatives: int, labels: list[float] | None = None) -> Batch:
    """Return a batch of five records with a token a sequence: queries, texts like them, negatives."""
    no, examples = np.zeros(1, np.bool_), []
    for side in range(2 + negatives):
        for record in range(5):
            target = Target(labels=np.array([int(side > 1)]), weights=np.array([float(side == 0)], np.float32))
            if labels:
                target = Target(labels=np.array([labels[record]], np.float32))
            targets = {} if side == 1 or (labels and side) else {"own": target}
            ids = np.array([5 * side + record])
            examples.append(Example(ids=ids, segments=ids * 0, words=no, special=no, record=record, targets=targets))
    return collate(examples)


@pytest.mark.parametrize(
    ("sides", "settings", "labels", "expected"),
    [
        (2, {}, None, 7.530271053314209),
        (4, {}, None, 7.617413520812988),
        (4, {"dimensions": (8, 3)}, None, 26.872493743896484),
        (2, {}, [0.1, 0.9, 0.5, 0.5, 0.3], 12.70163345336914),
    ],
)
def test_losses_are_those_of_sentence_transformers(sides: int, settings, labels, expected: float) -> None:
    """On the same vectors, in its version 6.2: MultipleNegativesRanking (and Cached), Matryoshka over it, CoSENT."""
    backbone = Architecture(layers=1, heads=1, width=12, vocabulary=50, length=8).build()
    comparison = compared(loss="cosent" if labels else "in_batch")
    head = ContrastiveHead(backbone, comparison=comparison, pooling="mean", projection=False, **settings)
    outputs = torch.cat([vectors(shift) for shift in (0.1, 0.45, 0.9, 1.3)[:sides]])
    loss = head.compare(outputs, laid_out(sides - 2, labels))
    assert loss.count == 5 and loss.total.item() / 5 == pytest.approx(expected, abs=1e-5)


def scored_by_teacher(negatives: int, *, over_queries: bool) -> Batch:
    """Return `laid_out` with the margins of a teacher's scores as labels."""
    no, examples = np.zeros(1, np.bool_), []
    for record in range(5):
        scores = [round(3 * float(np.sin(7 * record + 2 * place)), 3) for place in range(1 + negatives)]
        for side in range(2 + negatives):
            label = scores[0] - scores[side - 1] if side > 1 else 0.0
            weight = float((side == 0) == over_queries)
            target = Target(labels=np.array([label], np.float32), weights=np.array([weight], np.float32))
            ids = np.array([5 * side + record])
            targets = {} if side == 1 else {"own": target}
            examples.append(Example(ids=ids, segments=ids * 0, words=no, special=no, record=record, targets=targets))
    return collate(sorted(examples, key=lambda example: example.ids[0] * 7 % 30))


@pytest.mark.parametrize(
    ("loss", "negatives", "temperature", "expected", "count"),
    [
        ("margin_mse", 1, 0.05, 49.82353210449219, 5),
        ("margin_mse", 3, 0.05, 64.53633880615234, 15),
        ("kl", 1, 0.05, 1.9395738840103145, 5),
        ("kl", 3, 0.05, 4.347403347492217, 5),
        ("kl", 3, 1.0, 0.6040813326835632, 5),
    ],
)
def test_a_teachers_scores_are_learnt_as_sentence_transformers_does(
    loss, negatives: int, temperature: float, expected: float, count: int
) -> None:
    """MarginMSELoss of cosines over the temperature, and DistillKLDivLoss over its squared student temperature, 6.2."""
    backbone = Architecture(layers=1, heads=1, width=12, vocabulary=50, length=8).build()
    head = ContrastiveHead(
        backbone, comparison=compared(temperature=temperature, loss=loss), pooling="mean", projection=False
    )
    batch = scored_by_teacher(negatives, over_queries=loss == "kl")
    rows = torch.cat([vectors(shift) for shift in (0.1, 0.45, 0.9, 1.3, 1.7)[: 2 + negatives]])
    found = head.compare(rows[batch.ids], batch)
    assert found.count == count and found.total.item() / count == pytest.approx(expected, rel=1e-5)


def test_a_text_that_is_like_the_query_elsewhere_is_no_negative() -> None:
    batch = laid_out(1)
    index = torch.arange(5)
    assert alike_texts(batch, index, index + 5) is None
    # Records 0 and 3 have one query; the negative of record 1 is what is like it in record 0.
    ids = batch.ids.clone()
    ids[3], ids[11] = ids[0], ids[5]
    mask = alike_texts(dataclasses.replace(batch, ids=ids), index, torch.cat([index + 5, index + 10]))
    assert mask is not None and mask.nonzero().tolist() == [[0, 3], [0, 6], [3, 0], [3, 6]]
    # The second text of record 4 is the query of record 2 itself.
    ids = batch.ids.clone()
    ids[9] = ids[2]
    mask = alike_texts(dataclasses.replace(batch, ids=ids), index, index + 5)
    assert mask is not None and mask.nonzero().tolist() == [[2, 4]]


@torch.no_grad()
def test_a_text_that_is_like_the_query_in_another_step_is_no_negative() -> None:
    """Mined negatives of one query are often relevant to another one, whose row with them is in another step."""
    no, examples = np.zeros(1, np.bool_), []
    rows = [(0, 10, 20), (0, 11, 21), (1, 12, 11), (2, 10, 20)]  # query, positive, negative
    for record, row in enumerate(rows):
        for side, piece in enumerate(row):
            target = Target(labels=np.array([int(side > 1)]), weights=np.array([float(side == 0)], np.float32))
            ids, targets = np.array([piece]), {} if side == 1 else {"own": target}
            examples.append(Example(ids=ids, segments=ids * 0, words=no, special=no, record=record, targets=targets))
    backbone = Architecture(layers=1, heads=1, width=12, vocabulary=50, length=8).build()
    head = ContrastiveHead(backbone, comparison=compared(), pooling="mean", projection=False)
    learner = Learner(backbone, {"own": head}).eval()
    step = collate([example for example in examples if example.record in (0, 2)])  # without the row of 0 and 11
    unit = torch.nn.functional.normalize(backbone(step).hidden, dim=-1)
    vector = dict(zip(step.ids.tolist(), unit))

    def loss(choices: dict[tuple[int, int], list[int]]) -> float:
        rows = [(vector[query] @ vector[own] / 0.05, query, others) for (query, own), others in choices.items()]
        return sum(
            float(torch.stack([own, *(vector[query] @ vector[piece] / 0.05 for piece in others)]).logsumexp(0) - own)
            for own, query, others in rows
        )

    before = loss({(0, 10): [12, 20, 11], (1, 12): [10, 20, 11]})
    assert learner(step)["own"].total.item() == pytest.approx(before, rel=1e-4)
    head.note_rows(Examples.of(examples))
    after = loss({(0, 10): [12, 20], (1, 12): [10, 20, 11]})
    assert learner(step)["own"].total.item() == pytest.approx(after, rel=1e-4) and after < before


def test_hard_negatives_do_not_count_in_the_accuracy() -> None:
    census = Census.of([laid_out(3)])
    assert (census.counts, census.labels) == ({"own": 5.0}, {"own": 5})


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_passes_have_the_gradient_of_the_whole_step_in_the_memory_of_one(
    batch: Batch, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = Architecture(layers=2, heads=2, width=8, vocabulary=50, length=8)
    sizes = dataclasses.replace(sizes, dropout=dropout, attention_dropout=dropout)
    torch.manual_seed(0)
    backbone = sizes.build()
    heads = {"own": ContrastiveHead(backbone, comparison=compared(), pooling="mean", dimensions=(4,))}
    learner = Learner(backbone, heads)

    def gradient(pass_tokens: int) -> tuple[float, list[torch.Tensor], int, list[int]]:
        learner.zero_grad()
        torch.manual_seed(1)
        kept, read = 0, []
        monkeypatch.setattr(backbone, "forward", counting(type(backbone).forward.__get__(backbone), read))

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal kept
            kept += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = learner(dataclasses.replace(batch, whole=True, pass_tokens=pass_tokens))["own"]
        loss.total.backward()
        grads = [weight.grad.clone() for weight in learner.parameters() if weight.grad is not None]
        return loss.total.item(), grads, kept, read

    cached = gradient(12)
    if dropout:
        # The same passes without the cache: all of their activations are kept, none is computed again.
        monkeypatch.setattr(
            "osbert.models.contract.checkpoint", lambda function, *given, use_reentrant: function(*given)
        )
        reference = gradient(12)
    else:
        reference = gradient(0)
    assert cached[0] == pytest.approx(reference[0], rel=1e-5)
    for one, other in zip(cached[1], reference[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert max(cached[3]) <= 12 and sum(cached[3]) == 2 * 35
    assert cached[2] < reference[2] / 4


def test_passes_add_to_the_rows_of_a_table_one_by_one(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients of all passes that waited for the last one held a row of the table for each token of the step."""
    monkeypatch.setattr(adamw, "LARGE", 50)
    backbone = Architecture(layers=1, heads=1, width=8, vocabulary=50, length=8).build()
    learner = Learner(backbone, {"own": ContrastiveHead(backbone, comparison=compared(), pooling="mean")})
    adamw.give_row_gradients(learner)
    (table,) = (module.weight for module in learner.modules() if getattr(module, "sparse", False))
    rows: list[int] = []

    def watched(part: Batch, states=None, forward=backbone.forward):
        if torch.is_grad_enabled():
            rows.append(0 if table.grad is None else table.grad.values().shape[0])
        return forward(part, states)

    monkeypatch.setattr(backbone, "forward", watched)
    learner(dataclasses.replace(batch, whole=True, pass_tokens=12))["own"].total.backward()
    assert len(rows) > 2 and rows == sorted(rows) and rows[0] == 0 < rows[1]
    assert rows[-1] <= table.grad.values().shape[0] == len(batch.ids.unique())


def test_passes_through_a_frozen_encoder_train_the_head(batch: Batch) -> None:
    backbone = Architecture(layers=1, heads=1, width=8, vocabulary=50, length=8).build().requires_grad_(False)
    head = ContrastiveHead(backbone, comparison=compared(), pooling="mean")
    gradients = []
    for pass_tokens in (0, 12):
        head.zero_grad()
        learner = Learner(backbone, {"own": head}).eval()
        learner(dataclasses.replace(batch, whole=True, pass_tokens=pass_tokens))["own"].total.backward()
        gradients.append(head.dense.weight.grad.clone())
    torch.testing.assert_close(*gradients)


def counting(forward, read: list[int]):
    def counted(batch: Batch, states=None):
        read.append(batch.tokens)
        return forward(batch, states)

    return counted


@pytest.mark.parametrize("negatives", [0, 2])
def test_blocks_of_similarities_give_the_loss_and_the_gradient_of_all(negatives: int, monkeypatch) -> None:
    backbone = Architecture(layers=1, heads=1, width=12, vocabulary=50, length=8).build()
    head = ContrastiveHead(backbone, comparison=compared(), pooling="mean", projection=False)
    batch = laid_out(negatives)
    batch.ids[3], batch.ids[6] = batch.ids[0], batch.ids[5]  # equal queries, equal positives: no negatives
    results = []
    for most in (contrastive.MOST_SCORES, 2 * (1 + negatives) * 5):  # all five records, then two at a time
        monkeypatch.setattr(contrastive, "MOST_SCORES", most)
        outputs = torch.cat([vectors(shift) for shift in (0.1, 0.45, 0.9, 1.3)[: 2 + negatives]]).requires_grad_()
        loss = head.compare(outputs, batch)
        loss.total.backward()
        results.append((loss.total.detach(), loss.hits, outputs.grad))
    for whole, blocks in zip(*results):
        torch.testing.assert_close(whole, blocks)
