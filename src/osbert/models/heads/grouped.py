"""Heads with a softmax over a group: the tokens of a sequence (answer spans), or the choices of a record."""

from __future__ import annotations

import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear
from osbert.models.heads.transform import transform
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
        """Return the scores (N, 2) of every token being a start and an end."""
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


class ChoiceHead(Head):
    """Pooled states of a record's choices -> a score each, by one vector and a bias (SWAG, section 4.4)."""

    form = "choice"
    sparse = True

    def __init__(self, backbone: Backbone, *, target: str, dropout: float = 0.0) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, one at the right choice of each record.

        `dropout`: the dropout rate of the pooled state.
        """
        super().__init__()
        self.target = target
        self.dropout = Dropout(dropout)
        self.linear = Linear(backbone.architecture.width, 1)
        initialise_scores(self.linear, backbone.architecture.deviation)

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the score (B, 1) of every choice."""
        return self.linear(self.dropout(states.pooled))

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
