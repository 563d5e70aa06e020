"""Sparse vectors (SPLADE): the weights of the word pieces that a masked-language head predicts at the tokens of a text.

With the logits s (N, V) of N tokens, the weight of piece j is max_i log(1 + relu(s_ij)) (Formal et al. 2021b, equation
6; "splade"); the first version has a sum in place of the maximum (Formal et al. 2021a, equation 1; "splade_sum").
"splade_log" and "splade_log_sum" take the logarithm of 1 plus the weight once more (Shen et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, batches, evaluating
from osbert.inference.embedder import Embedder
from osbert.inference.model import LoadedModel
from osbert.inference.sparse_vectors.nearest import stack_rows
from osbert.inference.vectors.settings import VectorSettings

SCORED = 512
"""Most tokens whose logits (V for each) are in memory at a time."""


class SparseEmbedder(Embedder):
    """Computes sparse vectors (n, V), one weight for each piece of the model's vocabulary."""

    def __init__(self, engine: LoadedModel, settings: VectorSettings, *, tokens: int = TOKENS) -> None:
        """Check the settings. Raises UserError if the model has no head that predicts masked pieces."""
        if engine.masks is None:
            reason = engine.unusable_head or "it has no head that predicts masked pieces"
            raise UserError(
                f"{engine.folder} gives no sparse vectors (--pooling {settings.pooling}): {reason}.",
                code="unsupported-model",
            )
        self.head = engine.masks
        super().__init__(engine, settings, tokens=tokens)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a vector, (V,)."""
        return (len(self.head.pieces),)

    def vectors(self, groups: Sequence[Sequence[Example]]) -> csr_array:
        """Return the vectors (n, V) of n texts, given as their sequences.

        The weight of a piece in a text with several sequences is its largest one. Raises UserError if a weight is NaN
        or infinite.
        """
        learner = self.engine.learner
        flat = [example for group in groups for example in group]
        rows: list[csr_array] = [csr_array((0, 0))] * len(flat)
        with evaluating(learner) as device:
            for batch in batches(flat, tokens=self.tokens):
                hidden = learner.backbone(batch.to(device)).hidden
                pooled = pool_pieces(hidden, batch.lengths, self.head.scores, self.settings.pooling)
                for index, weights in zip(batch.records.tolist(), pooled, strict=True):
                    rows[index] = csr_array(weights[None].cpu().numpy())
        if len(groups) != len(flat):
            windows = iter(rows)
            rows = [reduce(csr_array.maximum, [next(windows) for _ in group]) for group in groups]
        matrix = stack_rows(rows) if rows else csr_array((0, *self.shape), dtype=np.float32)
        self._require_finite(matrix.data)
        return matrix


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
            weights = part.sum(dim=0) if sums else part.amax(dim=0)
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
