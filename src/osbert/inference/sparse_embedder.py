"""Computes sparse vectors (SPLADE) of texts by a masked-language head: see models/heads/splade.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from scipy.sparse import csr_array

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, batches, evaluating
from osbert.inference.embedder import Embedder
from osbert.inference.model import LoadedModel
from osbert.inference.vectors.settings import VectorSettings
from osbert.inference.vectors.sparse import stack_rows
from osbert.models.heads.splade import pool_pieces


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
