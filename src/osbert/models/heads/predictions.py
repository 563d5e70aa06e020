"""Prediction heads: pieces, masked or next ones, from token states; classes, labels or numbers from pooled states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from osbert.data.batch import Batch, BatchTarget
from osbert.models.contract import Backbone, Head, Loss, Sizes, States
from osbert.models.fast.cross_entropy import linear_cross_entropy
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear, linear
from osbert.models.forms import Form, Writing
from osbert.models.initialisation import initialise, initialise_scores
from osbert.models.transformer.block import ACTIVATIONS, norm_of


class Transform(nn.Module):
    """(N, D) -> (N, D): norm(activation(dense)), the prediction head of ModernBERT (Warner et al. 2024)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.dense = Linear(sizes.width, sizes.width, bias=sizes.head_biases)
        self.activation = ACTIVATIONS[sizes.activation]
        self.norm = norm_of(sizes, sizes.width, biases=sizes.head_biases)
        initialise(self, sizes.deviation)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the transformed states (N, D)."""
        return self.norm(self.activation(self.dense(hidden)))


def transform(sizes: Sizes) -> nn.Module:
    """Return the transform below a head's scores; the identity if `head_transform` is off."""
    return Transform(sizes) if sizes.head_transform else nn.Identity()


class MaskedLanguageHead(Head):
    """States of masked tokens -> scores over the vocabulary (BERT, section 3.1).

    Dense, activation, norm, then the product with the piece embeddings and a bias for each piece. The settings of the
    backbone change this: with `piece_transform = false` the product alone (GPT, Radford et al. 2018, section 3.1), with
    `piece_biases = true` plus biases (XLNet); with `tied = false` the head has a table of its own. `writes`: the token
    at which it predicts the next piece when generating from a source; None if it is not trained for that. Only labelled
    tokens, about 15%, are multiplied with the vocabulary.
    """

    form: Form = "mlm"
    sparse = True
    bias: Tensor

    def __init__(self, backbone: Backbone, *, target: str = "mlm", writes: Writing | None = None) -> None:
        """Stand on `backbone`, sharing its piece embeddings if tied; learn from the batch's targets `target`."""
        super().__init__()
        sizes = backbone.architecture
        self.target = target
        self.writes = writes
        if backbone.embedding is None:
            raise ValueError(f"the family {sizes.family} has no piece embeddings, which a language model needs")
        width = backbone.embedding.embedding_dim  # a score is the transformed state times a piece's embedding
        if sizes.piece_transform:
            self.dense = Linear(sizes.width, width, bias=sizes.head_biases)
            self.norm = norm_of(sizes, width, biases=sizes.head_biases)
            self.bias = nn.Parameter(torch.zeros(sizes.vocabulary))
        elif sizes.piece_biases:
            self.bias = nn.Parameter(torch.zeros(sizes.vocabulary))
        else:
            # The fused loss always needs a bias; 0 here, and no part of the state dict.
            self.register_buffer("bias", torch.zeros(sizes.vocabulary), persistent=False)
        self.transforms = sizes.piece_transform
        # T5's first release divides states by sqrt(D) before the tied product.
        self.scale = sizes.width**-0.5 if sizes.scaled_pieces else 1.0
        self.activation = ACTIVATIONS[sizes.piece_activation or sizes.activation]
        # In a tuple the table is not registered again: it is in the learner's state once, under the backbone.
        self.tied = (backbone.embedding,)
        self.table = None if sizes.tied else nn.Embedding(sizes.vocabulary, width)
        initialise(self, sizes.deviation)

    @property
    def pieces(self) -> Tensor:
        """Return the output embeddings of the pieces (V, D')."""
        return (self.table or self.tied[0]).weight

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (M, V) at the labelled positions."""
        return self.scores(states.hidden[batch.targets[self.target].index])

    def every(self, states: States, batch: Batch) -> Tensor:
        return self.scores(states.hidden)

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores (M, V) of any token states (M, D)."""
        return linear(self.transform(hidden), self.pieces, self.bias)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the (weighted) summed cross-entropy in nats over the labelled positions."""
        target = batch.targets[self.target]
        hidden = self.transform(states.hidden[target.index])
        total, hits = linear_cross_entropy(hidden, self.pieces, self.bias, target.labels, target.weights)
        return Loss(total=total, count=target.count, hits=hits)

    def flops(self, labels: int) -> int:
        # A tied table belongs to the backbone, so that super() does not count it.
        return super().flops(labels) + (2 * labels * self.pieces.numel() if self.table is None else 0)

    def transform(self, hidden: Tensor) -> Tensor:
        """Return the vectors (M, D') to multiply with the output embeddings, for token states (M, D)."""
        hidden = self.norm(self.activation(self.dense(hidden))) if self.transforms else hidden
        return hidden if self.scale == 1 else hidden * self.scale


def begin_at_unigrams(head: Head, counts: NDArray[np.integer]) -> None:
    """Set a vocabulary bias to the log of the unigram probabilities of `counts` (V,), with one added to each count."""
    probabilities = (counts + 1.0) / (counts + 1.0).sum()
    head.get_parameter("bias").data.copy_(torch.from_numpy(np.log(probabilities)))


class SequenceHead(Head):
    """Pooled states -> K scores a sequence by one linear layer, for next sentences or classes."""

    form: Form = "sequence"
    sparse = True

    def __init__(
        self, backbone: Backbone, *, target: str, labels: int = 2, dropout: float = 0.0, form: Form = "sequence"
    ) -> None:
        """Stand on `backbone` with `labels` = K outputs; learn from the batch's targets `target`.

        `dropout`: the dropout rate of the pooled state, 0 for next-sentence prediction and 0.1 for fine-tuning
        (appendix A.3). The attribute `loss`, a function of scores (M, K) and their targets, is cross-entropy by
        default.
        """
        super().__init__()
        self.form = form
        self.stride = 1
        """The number of consecutive targets of a sequence: K for soft targets and for labels with a sigmoid each."""
        self.loss: Callable[[Tensor, BatchTarget], Loss] = classification_loss
        self.target = target
        self.dropout = Dropout(dropout)
        self.linear = Linear(self.inputs(backbone.architecture.width), labels)
        initialise_scores(self.linear, backbone.architecture.deviation)

    @staticmethod
    def inputs(width: int) -> int:
        """Return the input size of the layer for states of this width."""
        return width

    def outputs(self, states: States, batch: Batch) -> Tensor:
        return self.linear(self.dropout(states.pooled))

    def blocks(self, states: States, batch: Batch) -> list[Tensor]:
        """Return the layer's inputs for the labelled sequences, in blocks (M, ...) of one kind of feature each."""
        return [states.pooled[self.labelled(batch)]]

    def labelled(self, batch: Batch) -> Tensor:
        """Return the indices (M,) of the labelled sequences."""
        return batch.targets[self.target].index[:: self.stride]

    def score_targets(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (M, K) of the labelled sequences."""
        return self.outputs(states, batch)[self.labelled(batch)]

    def forward(self, states: States, batch: Batch) -> Loss:
        return self.loss(self.score_targets(states, batch), batch.targets[self.target])

    def flops(self, labels: int) -> int:
        return super().flops(labels // self.stride)


class OrdersHead(SequenceHead):
    """Pooled states -> K scores a sequence. A pair is read in both orders, and its scores are summed.

    Each order adds half of the biases, which equals adding the two states before the layer (GPT, Radford et al. 2018,
    figure 1). One sequence of a record carries its label.
    """

    def __init__(self, backbone: Backbone, *, target: str, labels: int, dropout: float = 0.0, orders: int = 1) -> None:
        """Stand on `backbone`, as a SequenceHead; `orders`: the sequences of a record, 2 for pairs in both orders."""
        super().__init__(backbone, target=target, labels=labels, dropout=dropout)
        self.orders = orders

    def outputs(self, states: States, batch: Batch) -> Tensor:
        scores = super().outputs(states, batch)
        # Scores are summed over orders: each keeps 1 / orders of the bias, so that the sum has it once.
        return scores if self.orders == 1 else scores - self.linear.bias * (1 - 1 / self.orders)

    def score_targets(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (M, K) of the labelled sequences, summed over the orders of their records."""
        return (
            super().score_targets(states, batch)
            if self.orders == 1
            else self._sum_records(self.outputs(states, batch), batch)
        )

    def blocks(self, states: States, batch: Batch) -> list[Tensor]:
        """Return the pooled states (M, D) of the labelled sequences, summed over the orders of their records."""
        return super().blocks(states, batch) if self.orders == 1 else [self._sum_records(states.pooled, batch)]

    def _sum_records(self, values: Tensor, batch: Batch) -> Tensor:
        """Return the sums (M, ...) of `values` (B, ...) over the records of the labelled sequences."""
        records, rows = batch.records.unique(return_inverse=True)  # (B,): the record of each sequence
        # Sum over the sequences of each record, then pick the labelled one's.
        sums = values.new_zeros(len(records), values.shape[1]).index_add(0, rows, values)
        return sums[rows[self.labelled(batch)]]


class NumberHead(OrdersHead):
    """Pooled states -> one number a sequence (B, 1) by a linear layer, trained with squared error."""

    values = "numbers"

    def __init__(self, backbone: Backbone, *, target: str, dropout: float = 0.0, orders: int = 1) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, real numbers."""
        super().__init__(backbone, target=target, labels=1, dropout=dropout, orders=orders)
        self.loss = regression_loss


class LabelsHead(SequenceHead):
    """Pooled states -> K logits a sequence by a linear layer, for multi-label classification.

    A sequence has K consecutive targets, 0 or 1, each with a weight. The loss is binary cross-entropy.
    """

    values = "labels"

    def __init__(self, backbone: Backbone, *, target: str, labels: int, dropout: float = 0.0) -> None:
        """Stand on `backbone` with `labels` = K outputs; learn from the batch's targets `target`."""
        super().__init__(backbone, target=target, labels=labels, dropout=dropout)
        self.stride = labels
        self.loss = labels_loss


def ordinal_loss(scores: Tensor, target: BatchTarget) -> Loss:
    """Return the (weighted) summed cross-entropy of `scores` (M, K) in nats, for ordered classes.

    The true probability of class i is softmax over i of -(i - label)^2 (Díaz and Marathe 2019, equation 1).
    """
    probabilities = _ordinal_probabilities(scores)[target.labels]  # (M, K)
    each = functional.cross_entropy(scores.float(), probabilities, reduction="none")
    hits = (scores.detach().argmax(dim=-1) == target.labels).sum()
    return Loss(total=(each if target.weights is None else each * target.weights).sum(), count=target.count, hits=hits)


def classification_loss(
    scores: Tensor, target: BatchTarget, *, smoothing: float = 0.0, gamma: float = 0.0, robust: float = 0.0
) -> Loss:
    """Return the (weighted) summed cross-entropy of `scores` (M, K) in nats, in float32, and the number of hits.

    `smoothing`: probability that is spread over all classes (label smoothing, Szegedy et al. 2016, section 7). `gamma`:
    the exponent of the focal loss (Lin et al. 2017, equation 4); it cannot be combined with smoothing. `robust`: q of
    the generalised cross-entropy (1 - p^q) / q (Zhang and Sabuncu 2018, equation 6), in place of both.
    """
    hits = (scores.detach().argmax(dim=-1) == target.labels).sum()
    entropy = partial(functional.cross_entropy, scores.float(), target.labels, label_smoothing=smoothing)
    if target.weights is None and not (gamma or robust):
        return Loss(total=entropy(reduction="sum"), count=target.count, hits=hits)
    each = entropy(reduction="none")
    # -expm1(-each) is 1 - p, accurate also near 0. At 0 a power below 1 has an infinite gradient: clamp.
    if gamma:
        each = each * (-torch.expm1(-each)).clamp_min(torch.finfo(each.dtype).tiny) ** gamma
    if robust:
        each = -torch.expm1(-robust * each) / robust
    total = each.sum() if target.weights is None else (each * target.weights).sum()
    return Loss(total=total, count=target.count, hits=hits)


def soft_loss(
    scores: Tensor,
    target: BatchTarget,
    *,
    smoothing: float = 0.0,
    gamma: float = 0.0,
    robust: float = 0.0,
    ordered: bool = False,
) -> Loss:
    """Return the (weighted) summed cross-entropy of `scores` (M, K) with a probability of each class, in nats.

    A sequence has K consecutive targets, whose weights are the probabilities times the weights of the classes. Where
    one class has all of it, this is `classification_loss`, or `ordinal_loss` of `ordered` classes.
    """
    assert target.weights is not None
    weights = target.weights.view_as(scores)
    if ordered:
        weights = weights @ _ordinal_probabilities(scores)
    weights = (1 - smoothing) * weights + smoothing * weights.mean(dim=1, keepdim=True)
    logs = torch.log_softmax(scores.float(), dim=1)
    if gamma:
        weights = weights * (-torch.expm1(logs)).clamp_min(torch.finfo(logs.dtype).tiny) ** gamma
    if robust:
        logs = torch.expm1(robust * logs) / robust
    # Expected hits, times K as the accuracy is a mean over the K targets of each sequence.
    probabilities = target.labels.view_as(scores).gather(1, scores.detach().argmax(dim=1, keepdim=True))
    return Loss(total=-(weights * logs).sum(), count=target.count, hits=probabilities.sum() * scores.shape[1])


def _ordinal_probabilities(scores: Tensor) -> Tensor:
    """Return the probabilities (K, K) of K ordered classes, in a row for each label: more for classes near it."""
    classes = torch.arange(scores.shape[1], device=scores.device)
    return torch.softmax(-(classes - classes[:, None]).float().square(), dim=-1)


def regression_loss(scores: Tensor, target: BatchTarget) -> Loss:
    """Return the (weighted) sum of squared errors of `scores` (M, 1), in float32."""
    errors = (scores.squeeze(-1).float() - target.labels.float()).square()
    total = errors.sum() if target.weights is None else (errors * target.weights).sum()
    return Loss(total=total, count=target.count)


def labels_loss(scores: Tensor, target: BatchTarget) -> Loss:
    """Return the (weighted) sum of the binary cross-entropy of `scores` (B, K) against `target.labels` (B * K,)."""
    flat = scores.float().flatten()
    labels = target.labels.to(flat.dtype)
    total = functional.binary_cross_entropy_with_logits(flat, labels, weight=target.weights, reduction="sum")
    # A logit above 0 is a probability above 1/2.
    hits = ((flat.detach() > 0) == (labels > 0.5)).sum()
    return Loss(total=total, count=target.count, hits=hits)


class TextHead(MaskedLanguageHead):
    """States -> scores over the vocabulary, for the piece after each token; trained on labelled tokens only.

    It starts from the weights of the language-model head of pretraining. `prefix`: whether the tokens of a source
    attend to each other (prefix LM); imported left-to-right models have no such attention.
    """

    form: Form = "text"

    def __init__(self, backbone: Backbone, *, target: str, prefix: bool = False, writes: Writing | None = None) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, whose labels are pieces.

        The attribute `smoothing` is the label smoothing, 0 by default.
        """
        super().__init__(backbone, target=target, writes=writes)
        self.prefix = prefix
        self.smoothing = 0.0

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (N, V) at every token."""
        return self.every(states, batch)

    def forward(self, states: States, batch: Batch) -> Loss:
        if not self.smoothing:
            return super().forward(states, batch)
        target = batch.targets[self.target]
        return classification_loss(self.scores(states.hidden[target.index]), target, smoothing=self.smoothing)


def share_table(heads: Iterable[Head]) -> None:
    """Give all text heads of one backbone the output table of the first, where it is not the backbone's."""
    texts = [head for head in heads if isinstance(head, TextHead)]
    for head in texts:
        head.table = texts[0].table
