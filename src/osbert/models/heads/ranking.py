"""The reranking head: one score for each candidate of a query, trained listwise or pointwise."""

from __future__ import annotations

from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Loss, States
from osbert.models.forms import RankingLoss
from osbert.models.heads.grouped import log_softmax_within
from osbert.models.heads.predictions import SequenceHead


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
