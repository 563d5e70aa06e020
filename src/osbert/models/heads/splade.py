"""Sparse vectors (SPLADE): the weights of the word pieces that a masked-language head predicts at the tokens of a text.

With the logits s (N, V) of N tokens, the weight of piece j is max_i log(1 + relu(s_ij)) (Formal et al. 2021b, equation
6; "splade"); the first version has a sum in place of the maximum (Formal et al. 2021a, equation 1; "splade_sum").
"splade_log" and "splade_log_sum" take the logarithm of 1 plus the weight once more (Shen et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.examples import Examples
from osbert.models.contract import Backbone, Loss, States
from osbert.models.heads.contrastive import DotProducts, VectorComparison
from osbert.models.heads.predictions import MaskedLanguageHead

SCORED = 512
"""Most tokens whose logits (V for each) are in memory at a time."""
WARM_UP = 1 / 3
"""The fraction of a run in which the penalty grows, with the square of the steps (Formal et al. 2021a, section 4)."""


class SpladeHead(MaskedLanguageHead):
    """A masked-language head whose logits make a sparse vector (V,) of each text, compared by dot products."""

    pooling: str
    per_token = False  # a text has one vector
    sparse = False
    """It reads the states of all tokens."""

    def __init__(
        self,
        backbone: Backbone,
        *,
        comparison: VectorComparison,
        pooling: str,
        query_flops: float,
        document_flops: float,
    ) -> None:
        """Stand on `backbone`. `query_flops`, `document_flops`: weights of the penalty for first and other texts."""
        super().__init__(backbone, target=comparison.target)
        self.comparison = comparison
        self.pooling = pooling
        self.flops_weights = (query_flops, document_flops)
        self.penalty_fraction = 1.0
        """The part of the penalty that counts."""

    def note_rows(self, rows: Examples) -> None:
        """Note which texts are alike in the training rows."""
        self.comparison.note_rows(rows)

    def begin_step(self, done: float) -> None:
        """Set the part of the penalty that counts after a fraction of the run's steps."""
        self.penalty_fraction = min(done / WARM_UP, 1.0) ** 2

    def outputs(self, states: States, batch: Batch) -> Tensor:
        return torch.stack([*pool_pieces(states.hidden, batch.lengths, self.scores, self.pooling)])

    def compare(self, outputs: Tensor, batch: Batch) -> Loss:
        """Return the summed loss of R records from all vectors (B, V) of a step, with R times the penalty.

        The penalty (FLOPS, Paria et al. 2020, equation 4) is the sum over pieces of their squared mean weight.
        """
        loss = self.comparison(DotProducts(outputs), batch)
        target = batch.targets[self.comparison.target]
        queries = torch.zeros(len(outputs), dtype=torch.bool, device=outputs.device)
        queries[target.index[self.comparison.first(target)]] = True
        parts = zip(self.flops_weights, (outputs[queries], outputs[~queries]))
        penalty = torch.stack([weight * part.mean(dim=0).square().sum() for weight, part in parts]).sum()
        active = (outputs.detach() > 0).sum(), outputs.new_tensor(len(outputs))
        total = loss.total + self.penalty_fraction * loss.count * penalty
        return replace(loss, total=total, ratios={"active_pieces": active})

    def forward(self, states: States, batch: Batch) -> Loss:
        return self.compare(self.outputs(states, batch), batch)


def pool_pieces(
    hidden: Tensor, lengths: Sequence[int], score: Callable[[Tensor], Tensor], pooling: str
) -> Iterator[Tensor]:
    """Yield the weights (V,) of each sequence from the states (N, D) of all tokens; `score` returns logits (n, V)."""
    sums, logs = pooling.endswith("_sum"), 2 if "_log" in pooling else 1
    ends = np.cumsum(lengths)
    starts = ends - np.asarray(lengths)
    sequence_weights: Tensor | None = None
    for first in range(0, len(hidden), SCORED):
        scores = score(hidden[first : first + SCORED]).float()  # (n, V)
        if sums:
            scores = _saturate(scores, logs)
        last = first + len(scores)
        for index in range(int(np.searchsorted(ends, first, "right")), int(np.searchsorted(starts, last))):
            part = scores[max(starts[index] - first, 0) : ends[index] - first]
            if sums:
                weights = part.sum(dim=0)
            elif part.requires_grad:  # max is slower than amax, but keeps no logits for the backward pass
                weights = part.max(dim=0).values
            else:
                weights = part.amax(dim=0)
            if starts[index] < first and sequence_weights is not None:  # it began in the block before
                weights = sequence_weights + weights if sums else torch.maximum(sequence_weights, weights)
            if ends[index] > last:
                sequence_weights = weights
            else:
                # The maximum before the logarithm: both grow with the logit.
                yield weights if sums else _saturate(weights, logs)


def _saturate(scores: Tensor, logs: int) -> Tensor:
    for _ in range(logs):
        scores = scores.relu().log1p()
    return scores
