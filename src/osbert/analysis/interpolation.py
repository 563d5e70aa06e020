"""Sequences between a baseline and the text: interpolated word vectors in place of the embedding table's.

The points of the line are sequences of flat batches. A hook on the table of pieces substitutes the vectors; positions,
segments and norms are computed as usual, so only the words vary. The hook is on a copy of the model (module_copy.py),
so that other uses of the model in other threads go on as usual.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.data.example import Booleans, Example
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, batches
from osbert.models.contract import Learner
from osbert.models.module_copy import copy_modules

GRADIENT_TOKENS = 1024
"""Most tokens in a batch with gradients, which keeps the states of all layers in memory."""

BatchScore = Callable[[Learner, Batch], Tensor]
"""Maps a model and a batch to the number (B,) to explain for each sequence.

`Batch.records` (B,): the index of the example that each sequence is a copy of. If several sequences make one number,
such as the windows of a text, each gives one summand."""


@dataclass(frozen=True)
class Blend:
    """The example `index`: each token is `part` (n,) times itself plus 1 - part times the baseline."""

    index: int
    part: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Interpolation:
    """Examples, a score, and the baseline of missing words.

    `baseline` (D',): the vector of a missing word. `fixed` (n,) for each example: tokens that never change.
    """

    learner: Learner
    examples: Sequence[Example]
    score: BatchScore
    baseline: Tensor
    fixed: Sequence[Booleans]

    def at(self, index: int, part: float) -> Blend:
        """Return the blend of an example with the same `part` for all its tokens."""
        return Blend(index, np.full(len(self.examples[index]), part, np.float32))

    def scores(self, blends: Sequence[Blend]) -> NDArray[np.float64]:
        """Return the score (n,) of each of n blends, or a row (n, D) if the score returns vectors."""
        blend_scores: list[NDArray[np.float64]] = [np.empty(0)] * len(blends)
        with torch.inference_mode(False), torch.no_grad():
            for blend_indices, batch, part in self._batches(blends, TOKENS):
                start, way = self._ends(batch)
                with _substitute(require_table(self.copy), start + part * way):
                    rows = self.score(self.copy, batch).double().cpu().numpy()
                for blend_index, row in zip(blend_indices, rows, strict=True):
                    blend_scores[blend_index] = row
        return np.array(blend_scores)

    def slopes(self, blends: Sequence[Blend]) -> list[NDArray[np.float64]]:
        """Return for each blend the derivatives (n,) of the score along the way from baseline to token."""
        blend_slopes: list[NDArray[np.float64]] = [np.empty(0)] * len(blends)
        with torch.inference_mode(False), torch.enable_grad():
            for blend_indices, batch, part in self._batches(blends, GRADIENT_TOKENS):
                start, way = self._ends(batch)
                vectors = (start + part * way).requires_grad_()
                with _substitute(require_table(self.copy), vectors):
                    total = self.score(self.copy, batch).sum()
                (gradient,) = torch.autograd.grad(total, vectors)
                # dF/dpart of a token: the gradient at the point times the direction of the line. Summed over D.
                slopes = (gradient.double() * way.double()).sum(dim=1).cpu()  # (N,)
                for blend_index, row in zip(blend_indices, slopes.split(list(batch.lengths)), strict=True):
                    blend_slopes[blend_index] = row.numpy()
        return blend_slopes

    @cached_property
    def copy(self) -> Learner:
        """The model of this line alone, whose table is hooked."""
        return copy_modules(self.learner)

    def _batches(self, blends: Sequence[Blend], tokens: int) -> Iterator[tuple[list[int], Batch, Tensor]]:
        """Yield batches, the index in `blends` of each sequence, and the part (N, 1) of each token."""
        device = next(self.learner.parameters()).device
        for batch in batches([self.examples[blend.index] for blend in blends], tokens=tokens):
            blend_indices = batch.records.tolist()
            # batches() numbers the blends; the score needs the index of the example that each is a copy of.
            originals = torch.tensor([blends[blend_index].index for blend_index in blend_indices])
            parts = np.concatenate([blends[blend_index].part for blend_index in blend_indices])
            device_batch = replace(batch, records=originals).to(device)
            yield blend_indices, device_batch, torch.from_numpy(parts).to(device)[:, None]

    def _ends(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the vectors (N, D') of the baseline, and the differences from there to the tokens (N, D')."""
        fixed = np.concatenate([self.fixed[index] for index in batch.records.tolist()])
        with torch.no_grad():
            vectors = require_table(self.learner)(batch.ids)
            # A fixed token starts at its own vector, so its difference and its weight are 0.
            stays = torch.from_numpy(fixed).to(vectors.device)[:, None]
            start = torch.where(stays, vectors, self.baseline.to(vectors))
        return start, vectors - start


def can_be_weighed(learner: Learner) -> bool:
    """Return whether gradients reach the word vectors of a model."""
    frozen = any(head.frozen is not None for head in learner.heads.values())
    return learner.backbone.embedding is not None and not frozen


def require_table(learner: Learner) -> nn.Embedding:
    """Return the embedding table of a model. Raises UserError if there is none or if the encoder is frozen."""
    table = learner.backbone.embedding
    if table is None or not can_be_weighed(learner):
        raise UserError(
            "Predictions of this model cannot be attributed to words: it has no word vectors, or its encoder is "
            "frozen below an LSTM (--features). Fine-tune the encoder itself.",
            code="unsupported-model",
        )
    return table


@contextlib.contextmanager
def _substitute(table: nn.Embedding, vectors: Tensor) -> Iterator[None]:
    """Return `vectors` (N, D') from each lookup in the table, inside the block."""
    handle = table.register_forward_hook(lambda module, inputs, output: vectors)
    try:
        yield
    finally:
        handle.remove()
