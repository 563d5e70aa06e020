"""Heads that learn vectors of texts: from negatives, scores, labels (SetFit), and pairs that are scored apart."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from osbert.data.batch import TOKEN_COLUMNS, Batch, BatchTarget
from osbert.data.example import Integers, Places
from osbert.data.examples import Examples
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.linear import Linear
from osbert.models.forms import Pooling, Values, VectorLoss, pair_blocks, pool_states, pool_texts, split_pooling
from osbert.models.heads.grouped import log_softmax_within
from osbert.models.heads.predictions import SequenceHead, classification_loss, regression_loss
from osbert.models.initialisation import initialise

MOST_SCORES = 2**20
"""Most similarities of a step that are in memory at a time, if a first text has no more."""


class Similarities(ABC):
    """How alike the texts of a batch are, which are named by the indices of their sequences."""

    @abstractmethod
    def blocks(self, first: Tensor, others: Tensor, size: int) -> Iterable[Callable[[], Tensor]]:
        """Return functions, each of which computes the similarities (`size`, C) of some first texts with C others."""

    @abstractmethod
    def pairs(self, first: Tensor, others: Tensor) -> Tensor:
        """Return the similarity (R,) of each first text with its other one."""


class DotProducts(Similarities):
    """Dot products of texts with a vector each, (B, d)."""

    def __init__(self, vectors: Tensor) -> None:
        """Compare these vectors."""
        self.vectors = vectors

    def blocks(self, first: Tensor, others: Tensor, size: int) -> Iterable[Callable[[], Tensor]]:
        """Return what computes the products of some first texts."""
        columns = self.vectors[others].T
        return [partial(torch.matmul, rows, columns) for rows in self.vectors[first].split(size)]

    def pairs(self, first: Tensor, others: Tensor) -> Tensor:
        """Return the products (R,)."""
        return (self.vectors[first] * self.vectors[others]).sum(dim=-1)


@dataclass(kw_only=True)
class VectorComparison:
    """Compares the texts of a step. The targets `target` are 0 at the first text of a record, 1 at a negative.

    With the loss cosent they are scores at the first texts instead; with a teacher's, at each negative the margin by
    which the positive scores more; only the first texts have a weight (kl), or the negatives (margin_mse).
    """

    target: str
    temperature: float
    loss: VectorLoss
    alike: Mapping[int, Collection[int]] = field(default_factory=dict)
    """The numbers of the texts that are like a first text, by its number; of those with several in all rows."""

    def note_rows(self, rows: Examples) -> None:
        """Note which texts are alike in the training rows: in a step of others, too, they are no negatives."""
        if self.loss != "in_batch":
            return
        targets, numbers = rows.targets[self.target], text_numbers(rows.ids, rows.lengths)
        # The second text of a record is the sequence after the first one.
        first = np.repeat(np.arange(len(rows)), targets.counts)[targets.labels == 0]
        alike: dict[int, set[int]] = {}
        for text, other in zip(numbers[first].tolist(), numbers[first + 1].tolist()):
            alike.setdefault(text, set()).add(other)
        self.alike = {text: others for text, others in alike.items() if len(others) > 1}

    def first(self, target: BatchTarget) -> Tensor:
        """Return which of the batch's targets are at first texts (M,)."""
        if self.loss == "cosent":
            return torch.ones_like(target.labels, dtype=torch.bool)
        if self.loss == "in_batch":
            return target.labels == 0
        assert target.weights is not None
        return target.weights == float(self.loss == "kl")

    def __call__(self, texts: Similarities, batch: Batch) -> Loss:
        """Return the summed loss of R records from the similarities of the texts of a step."""
        target = batch.targets[self.target]
        is_first = self.first(target)
        first, negatives = target.index[is_first], target.index[~is_first]
        if self.loss in ("kl", "margin_mse"):
            first = first[batch.records[first].argsort()]
        second = partners(batch, first, but=negatives)
        if self.loss == "in_batch":
            candidates = torch.cat([second, negatives])
            alike = alike_texts(batch, first, candidates, self.alike)
            return in_batch(texts, first, candidates, temperature=self.temperature, count=target.count, alike=alike)
        scores = texts.pairs(first, second)
        if self.loss == "cosent":
            return cosent(scores, target.labels, temperature=self.temperature)
        rows = torch.searchsorted(batch.records[first], batch.records[negatives])  # (H,): the record of each negative
        margins = (scores[rows] - texts.pairs(first[rows], negatives)) / self.temperature
        distilled = distil_order if self.loss == "kl" else distil_margins
        return distilled(margins, target.labels[~is_first], rows, count=target.count)


class ContrastiveHead(Head):
    """States of texts -> a vector each; the negatives of a text are the other texts of its step, and hard negatives.

    The loss cannot be split into sums over records: all vectors of a step are compared (`Batch.whole`).
    """

    form = "vectors"
    pooling: str

    def __init__(
        self,
        backbone: Backbone,
        *,
        comparison: VectorComparison,
        pooling: str,
        dimensions: Sequence[int] = (),
        projection: bool = True,
    ) -> None:
        """Stand on `backbone`. `projection`: in training, a dense layer and tanh follow the pooling (SimCSE's "w/ MLP
        (train)"). `dimensions`: the loss is added over these first numbers of each vector (Matryoshka representations,
        Kusupati et al. 2022, equation 1).
        """
        super().__init__()
        self.comparison = comparison
        self.pooling = pooling
        self.dimensions = tuple(dimensions)
        self.summaries = backbone.summaries
        width = backbone.architecture.width * len(split_pooling(pooling))
        self.dense = Linear(width, width) if projection else None
        if projection:
            initialise(self, backbone.architecture.deviation)

    def note_rows(self, rows: Examples) -> None:
        self.comparison.note_rows(rows)

    def outputs(self, states: States, batch: Batch) -> Tensor:
        return torch.stack(pool_texts(states.hidden, batch, self.pooling, self.summaries(batch)))

    def compare(self, outputs: Tensor, batch: Batch) -> Loss:
        """Return the summed loss of R records from all vectors (B, D) of a step, by their cosines."""
        vectors = outputs.float() if self.dense is None else torch.tanh(self.dense(outputs)).float()
        sizes = (vectors.shape[1], *self.dimensions)
        cut = (DotProducts(functional.normalize(vectors[:, :size], dim=-1)) for size in sizes)
        losses = [self.comparison(similarities, batch) for similarities in cut]
        return replace(losses[0], total=torch.stack([loss.total for loss in losses]).sum()) if losses[1:] else losses[0]

    def forward(self, states: States, batch: Batch) -> Loss:
        return self.compare(self.outputs(states, batch), batch)


class SameTextHead(Head):
    """Encodes each sequence twice with different dropout; the positive of a vector is the second one of its text.

    The pooled vectors are compared directly. A new dense layer, as in "w/ MLP (train)", would disturb vectors that are
    already good.
    """

    form = "vectors"
    pooling: Pooling

    def __init__(self, backbone: Backbone, *, target: str, pooling: Pooling, temperature: float) -> None:
        """Stand on `backbone`; every sequence of a batch has a target `target`."""
        super().__init__()
        self.target = target
        self.pooling = pooling
        self.temperature = temperature
        self.summaries = backbone.summaries

    def before(self, batch: Batch) -> tuple[Batch, Mapping[str, Loss]]:
        """Return the batch with a copy of its B sequences appended."""
        return (twice(batch) if self.target in batch.targets else batch), {}

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vectors (M, D) of the first encodings."""
        return self._vectors(states, batch)[batch.targets[self.target].index]

    def forward(self, states: States, batch: Batch) -> Loss:
        target, vectors = batch.targets[self.target], functional.normalize(self._vectors(states, batch).float(), dim=-1)
        # The batch was doubled: the copy of sequence i is sequence i + B.
        second = target.index + len(batch.lengths) // 2
        return in_batch(DotProducts(vectors), target.index, second, temperature=self.temperature, count=target.count)

    def _vectors(self, states: States, batch: Batch) -> Tensor:
        return torch.stack(pool_states(states.hidden, batch, self.pooling, self.summaries(batch)))


def in_batch(
    texts: Similarities,
    first: Tensor,
    candidates: Tensor,
    *,
    temperature: float,
    count: float,
    alike: Tensor | None = None,
) -> Loss:
    """Return the summed cross-entropy in nats of R first texts, each a choice among R + H candidates.

    The first R candidates are the positives, the others H hard negatives; scores are similarities over the temperature
    (SimCSE, equation 5). `alike` (R, R + H): candidates that are no negatives, None for none.
    """

    def compute_block(similarities: Callable[[], Tensor], right: Tensor) -> tuple[Tensor, Tensor]:
        scores = similarities() / temperature
        if alike is not None:
            scores = scores.masked_fill(alike[right], -math.inf)
        hits = (scores.detach().argmax(dim=-1) == right).sum()
        return functional.cross_entropy(scores, right, reduction="sum"), hits

    # Of several blocks none is kept for the backward pass, which computes each one again.
    size = max(1, MOST_SCORES // len(candidates))
    keep = len(first) <= size
    again = partial(checkpoint, compute_block, use_reentrant=False, preserve_rng_state=False)
    rights = torch.arange(len(first), device=first.device).split(size)  # a text's number is its positive's
    blocks = zip(texts.blocks(first, candidates, size), rights)
    sums = [compute_block(*block) if keep else again(*block) for block in blocks]
    total, hits = (torch.stack(column).sum() for column in zip(*sums))
    return Loss(total=total, count=count, hits=hits)


def cosent(cosines: Tensor, scores: Tensor, *, temperature: float) -> Loss:
    """Return R times the CoSENT loss of pairs with the cosines (R,) and the scores (R,): ln(1 + sum of exp(d)).

    The sum is over all two pairs of which the first has the higher score; d is the second's cosine less the first's,
    over the temperature (Su 2022, kexue.fm/archives/8847, equation 5). Only the order of the scores counts.

    >>> round(cosent(torch.tensor([0.5, 0.1]), torch.tensor([4.0, 1.0]), temperature=0.05).total.item() / 2, 6)
    0.000335
    """
    differences = (cosines[None] - cosines[:, None]) / temperature  # (R, R): row i has j's cosine less i's
    differences = differences.masked_fill(scores[:, None] <= scores[None], -math.inf)
    none = differences.new_zeros(1)
    return Loss(
        total=torch.cat([none, differences.flatten()]).logsumexp(dim=0) * len(cosines), count=float(len(cosines))
    )


def distil_margins(margins: Tensor, labels: Tensor, rows: Tensor, *, count: float) -> Loss:
    """Return the summed squared differences of margins (H,) from a teacher's (Hofstätter et al. 2020, equation 2)."""
    return Loss(total=(margins - labels).square().sum(), count=count, hits=(margins.detach() > 0).sum())


def distil_order(margins: Tensor, labels: Tensor, rows: Tensor, *, count: float) -> Loss:
    """Return the summed Kullback-Leibler divergence in nats of the distributions over the texts of each record.

    `margins`, `labels` (H,): what the positive scores more than each other text, by the vectors and by the teacher;
    `rows` (H,): the record of each, 0 to R - 1. `count`: R.

    >>> margins = torch.tensor([0.0, 1.0])
    >>> round(distil_order(margins, torch.tensor([2.0, 1.0]), torch.tensor([0, 0]), count=1).total.item(), 4)
    0.2743
    """
    records = int(count)
    text_records = torch.cat([torch.arange(records, device=rows.device), rows])  # the positives come first
    positives = margins.new_zeros(records)  # their margins to themselves
    student, teacher = (
        log_softmax_within(torch.cat([positives, -scores])[:, None], text_records, records)
        for scores in (margins, labels)
    )
    total = (teacher[0].exp() * (teacher[0] - student[0])).sum()
    return Loss(total=total, count=count, hits=(student[1].squeeze(1) <= 0).sum())


def alike_texts(
    batch: Batch, first: Tensor, candidates: Tensor, known: Mapping[int, Collection[int]] | None = None
) -> Tensor | None:
    """Return a mask (R, C) of candidates that are no negatives of R first texts, though not their own; None for none.

    They are the first text itself and the texts that are like it in another record, of the step or `known`. The first R
    candidates are the texts like those in `first`. Sequences of equal pieces are one text.
    """
    numbers = text_numbers(batch.ids.cpu().numpy(), batch.lengths)
    of_first, of_candidates = numbers[first.cpu().numpy()], numbers[candidates.cpu().numpy()]
    columns: dict[int, list[int]] = {}
    for column, number in enumerate(of_candidates.tolist()):
        columns.setdefault(number, []).append(column)
    like = {text: {text, *(known or {}).get(text, ())} for text in of_first.tolist()}
    for text, number in zip(of_first.tolist(), of_candidates.tolist()):
        like[text].add(number)
    hits = [
        (row, column)
        for row, text in enumerate(of_first.tolist())
        for number in like[text]
        for column in columns.get(number, ())
        if column != row
    ]
    if not hits:
        return None
    alike = torch.zeros(len(first), len(candidates), dtype=torch.bool)
    alike[tuple(torch.tensor(hits, dtype=torch.int64).T)] = True
    return alike.to(first.device)


def text_numbers(ids: Integers, lengths: Sequence[int] | Places) -> NDArray[np.int64]:
    """Return a number (B,) for each sequence of `ids` (N,), equal for equal pieces and the same in every batch."""
    texts = np.split(ids.astype(np.int64), np.cumsum(lengths)[:-1])
    return np.array([hash(text.tobytes()) for text in texts], np.int64)


def twice(batch: Batch) -> Batch:
    """Return a batch with its B sequences repeated after the last one; targets are those of the first copy."""
    columns: dict[str, Any] = {
        name: torch.cat([column, column]) for name in TOKEN_COLUMNS if (column := getattr(batch, name)) is not None
    }
    return replace(
        batch,
        **columns,
        lengths=batch.lengths * 2,
        starts=torch.cat([batch.starts, batch.starts + batch.tokens]),
        records=torch.cat([batch.records, batch.records]),
    )


def partners(batch: Batch, first: Tensor, *, but: Tensor | None = None) -> Tensor:
    """Return the other sequence (R,) of the record of each sequence in `first` (R,), none of those in `but` (H,)."""
    # Without these a record has two sequences: those that are not first are the partners.
    others = torch.ones(len(batch.lengths), dtype=torch.bool, device=first.device)
    others[first] = False
    if but is not None:
        others[but] = False
    second = others.nonzero().squeeze(1)
    # Sorted by record, so that searchsorted finds the partner of each record.
    ordered = second[batch.records[second].argsort()]
    ranks = torch.searchsorted(batch.records[ordered], batch.records[first])
    return ordered[ranks]


class SameClassHead(Head):
    """Pooled states -> the cosine of each pair, with the target 1 for two texts of one label and 0 for others.

    SetFit (Tunstall et al. 2022, section 3.1) samples pairs of texts; here the loss is over all pairs of a step, which
    is one pass, so each text is encoded once for many pairs. Equal and unequal pairs have the same total weight. The
    head has no weights, and uses the targets of another head on the same states.
    """

    sparse = True

    def __init__(self, backbone: Backbone, *, target: str, stride: int = 1) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`: a class each, or `stride` probabilities."""
        super().__init__()
        self.target = target
        self.stride = stride

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vector (B, D) of every sequence, of length 1."""
        return functional.normalize(states.pooled.float(), dim=-1)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the squared error of the cosines: the mean over equal pairs plus the mean over unequal pairs.

        It is multiplied by the M sequences and has the count M. A pass with one sequence has no pairs, and loss 0.
        """
        target = batch.targets[self.target]
        vectors = self.outputs(states, batch)[target.index[:: self.stride]]  # (M, D)
        cosines = vectors @ vectors.T
        classes = target.labels if self.stride == 1 else target.labels.view(-1, self.stride).argmax(dim=1)
        same = (classes[:, None] == classes).float()
        above = vectors.new_ones(same.shape).triu(diagonal=1)  # each pair once, none with itself
        errors = (cosines - same).square()
        like, unlike = ((errors * kind).sum() / kind.sum().clamp_min(1) for kind in (same * above, (1 - same) * above))
        return Loss(total=(like + unlike) * len(vectors), count=float(len(vectors)))


class ApartHead(SequenceHead):
    """Pooled states of two texts -> K scores a pair, by a linear layer on u, v, |u - v|, uv and their cosine.

    After Sentence-BERT (Reimers and Gurevych 2019, section 3). The outputs are the vectors, since in
    inference a batch need not hold both texts of a pair; decoding scores them with the layer, from `decoding_values`.
    The first sequence of a record carries its label.
    """

    def __init__(
        self, backbone: Backbone, *, target: str, labels: int, dropout: float = 0.0, values: Values = "classes"
    ) -> None:
        """Stand on `backbone` with `labels` = K scores, of classes or of numbers."""
        super().__init__(backbone, target=target, labels=labels, dropout=dropout, form="vectors")
        self.values = values
        self.loss = regression_loss if values == "numbers" else classification_loss

    @staticmethod
    def inputs(width: int) -> int:
        """Return the size of all features of a pair."""
        return 4 * width + 1

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vector (B, D) of every text, of length 1."""
        return functional.normalize(states.pooled.float(), dim=-1)

    def blocks(self, states: States, batch: Batch) -> list[Tensor]:
        """Return the features of M labelled pairs: u, v, |u - v|, uv (M, D) each, and their cosine (M, 1)."""
        # Only the first sequence of a record has a target: its partner is found by the record.
        vectors, first = self.outputs(states, batch), self.labelled(batch)
        features: list[Tensor] = pair_blocks(vectors[first], vectors[partners(batch, first)])
        return features

    def score_targets(self, states: States, batch: Batch) -> Tensor:
        return self.linear(self.dropout(torch.cat(self.blocks(states, batch), dim=1)))

    def decoding_values(self) -> dict[str, list[Any]]:
        """Return the layer, K rows of weights and K biases."""
        return {"weight": self.linear.weight.tolist(), "bias": self.linear.bias.tolist()}
