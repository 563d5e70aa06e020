"""Heads with a softmax over a group: tokens of a sequence (spans), choices of a record, candidates of a query."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.linear import Linear
from osbert.models.forms import RankingLoss
from osbert.models.heads.predictions import SequenceHead, transform
from osbert.models.initialisation import initialise_scores


class SpanHead(Head):
    """States of all tokens -> two scores a token, by a start and an end vector with a bias each (section 4.2)."""

    form = "span"

    def __init__(self, backbone: Backbone, *, target: str) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`: tokens with label 0 (start) or 1 (end)."""
        super().__init__()
        self.target = target
        self.transform = transform(backbone.architecture)
        self.linear = Linear(backbone.architecture.width, 2)
        initialise_scores(self.linear, backbone.architecture.deviation)

    def outputs(self, states: States, batch: Batch) -> Tensor:
        return self.linear(self.transform(states.hidden))

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed negative log-likelihood of starts and ends, each under a softmax over its sequence.

        The mean over all labels equals the average of the losses of start and end, as in google-research/bert.
        """
        target = batch.targets[self.target]
        scores = self.outputs(states, batch).float()
        tokens = torch.arange(len(scores), device=scores.device)
        rows = torch.searchsorted(batch.starts, tokens, right=True) - 1  # (N,): the sequence of each token
        logs, top = log_softmax_within(scores, rows, len(batch.lengths))
        # Label 0 selects the column of starts, label 1 that of ends.
        chosen = target.index, target.labels
        # A hit if the score of the label is the highest of its sequence; ties count.
        hits = (scores.detach()[chosen] == top[rows[target.index], target.labels]).sum()
        return Loss(total=-logs[chosen].sum(), count=target.count, hits=hits)


class ChoiceHead(SequenceHead):
    """Pooled states of a record's choices -> a score each, by one vector and a bias (SWAG, section 4.4)."""

    def __init__(self, backbone: Backbone, *, target: str, dropout: float = 0.0) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, one at the right choice of each record.

        `dropout`: the dropout rate of the pooled state.
        """
        super().__init__(backbone, target=target, labels=1, dropout=dropout, form="choice")

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed negative log-likelihood of the right choices, under a softmax over those of a record.

        The batch must hold all choices of its records (`together` of the task).
        """
        right = batch.targets[self.target].index
        scores = self.outputs(states, batch).float()
        records, rows = batch.records.unique(return_inverse=True)  # (B,): the record of each sequence
        logs, top = log_softmax_within(scores, rows, len(records))
        hits = (scores.detach()[right] == top[rows[right]]).sum()
        return Loss(total=-logs[right].sum(), count=batch.targets[self.target].count, hits=hits)


def log_softmax_within(scores: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the log-softmax (N, K) of scores (N, K) within groups, and the highest score of each group (count, K).

    `rows` (N,): the group of each score, of `count` groups. It needs no padding and no loop over groups.
    """
    groups = rows[:, None].expand_as(scores)
    lowest = torch.full((count, scores.shape[1]), -torch.inf, dtype=scores.dtype, device=scores.device)
    # The maximum of each group is subtracted before exp, so that nothing overflows.
    top = lowest.scatter_reduce(0, groups, scores.detach(), "amax")
    shifted = scores - top[rows]
    sums = torch.zeros_like(top).index_add(0, rows, shifted.exp())
    # log softmax = (score - max) - log sum exp(score - max), within each group.
    return shifted - sums.log()[rows], top


class RankingHead(SequenceHead):
    """Pooled states of pairs of a query and a candidate -> the candidate's score (B, 1), a logit."""

    values = "relevance"

    def __init__(self, backbone: Backbone, *, target: str, loss: RankingLoss, dropout: float = 0.0) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, a number for each candidate.

        softmax: its relevance as a fraction of the total of its query; all candidates of a query must be in the batch.
        bce: the probability that it is relevant.
        """
        super().__init__(backbone, target=target, labels=1, dropout=dropout)
        self.ranking_loss = loss

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats: of each query's list (softmax), or of each candidate (bce).

        softmax is the cross-entropy of ListNet's top-one probabilities (Cao et al. 2007, section 4.2) with normalised
        relevance as the target (Bruch et al. 2019, section 3).
        """
        target = batch.targets[self.target]
        scores = self.score_targets(states, batch).float()  # (M, 1)
        if self.ranking_loss == "bce":
            errors = functional.binary_cross_entropy_with_logits(scores[:, 0], target.labels, reduction="sum")
            return Loss(total=errors, count=target.count)
        # Candidates of a query share its record number; `unique` numbers the queries from 0.
        records, rows = batch.records[target.index].unique(return_inverse=True)  # (M,): the query of each candidate
        logs, _ = log_softmax_within(scores, rows, len(records))
        # Labels of a query sum to 1, so each query contributes one cross-entropy.
        return Loss(total=-(target.labels * logs[:, 0]).sum(), count=target.count)
