"""Sequences between a baseline and themselves: a model reads other word vectors than those of its table.

The points between the two are sequences of flat batches. The model is as it is: a hook on its table of pieces hands on
the vectors, and positions, segments and norms follow as ever, so that words alone vary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.data.example import Booleans, Example
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, batches
from osbert.models.contract import Learner

GRADIENT_TOKENS = 1024
"""Most tokens in a batch whose gradients are taken: all layers' states are in memory."""

BatchScore = Callable[[Batch], Tensor]
"""Gives the number (B,) that is explained for each sequence of a batch.

`Batch.records` (B,) says which of the sequences each is a copy of. Sequences that make one number together, such as the
windows of a text, give its summands.
"""


@dataclass(frozen=True)
class Blend:
    """The example at `place`, each token of which is `part` (n,) itself and for the rest the baseline."""

    place: int
    part: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Interpolation:
    """Sequences, a score, and what stands for missing words.

    `baseline` (D',): the vector of a missing word. `fixed` (n,) for each example: tokens that always stay themselves.
    """

    learner: Learner
    examples: Sequence[Example]
    score: BatchScore
    baseline: Tensor
    fixed: Sequence[Booleans]

    def at(self, place: int, part: float) -> Blend:
        """Return an example with the same part in all its tokens."""
        return Blend(place, np.full(len(self.examples[place]), part, np.float32))

    def scores(self, blends: Sequence[Blend]) -> NDArray[np.float64]:
        """Return the score (n,) of each of n blends, or a row of numbers (n, D) where the score gives such."""
        found: list[NDArray[np.float64]] = [np.empty(0)] * len(blends)
        with undisturbed(self.learner) as device:
            for places, batch, part in self._batches(blends, TOKENS, device):
                start, way = self._ends(batch)
                with torch.no_grad(), _reading(self.table, start + part * way):
                    rows = self.score(batch).double().cpu().numpy()
                for place, row in zip(places, rows, strict=True):
                    found[place] = row
        return np.array(found)

    def slopes(self, blends: Sequence[Blend]) -> list[NDArray[np.float64]]:
        """Return for each blend, for each of its tokens (n,), the derivative of the score from baseline to token."""
        found: list[NDArray[np.float64]] = [np.empty(0)] * len(blends)
        with undisturbed(self.learner) as device:
            for places, batch, part in self._batches(blends, GRADIENT_TOKENS, device):
                start, way = self._ends(batch)
                vectors = (start + part * way).requires_grad_()
                with torch.enable_grad(), _reading(self.table, vectors):
                    total = self.score(batch).sum()
                (gradient,) = torch.autograd.grad(total, vectors)
                slopes = (gradient.double() * way.double()).sum(dim=1).cpu()  # (N,)
                for place, row in zip(places, slopes.split(list(batch.lengths)), strict=True):
                    found[place] = row.numpy()
        return found

    @property
    def table(self) -> nn.Embedding:
        """Return the table of pieces."""
        return require_table(self.learner)

    def _batches(
        self, blends: Sequence[Blend], tokens: int, device: torch.device
    ) -> Iterator[tuple[list[int], Batch, Tensor]]:
        """Yield batches, with the place in `blends` of each sequence, and the part (N, 1) of each token."""
        for batch in batches([self.examples[blend.place] for blend in blends], tokens=tokens):
            places = batch.records.tolist()
            originals = torch.tensor([blends[place].place for place in places])
            parts = np.concatenate([blends[place].part for place in places])
            there = replace(batch, records=originals).to(device)
            yield places, there, torch.from_numpy(parts).to(device)[:, None]

    def _ends(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the vectors (N, D') of the baseline, and those that lead from there to the tokens."""
        fixed = np.concatenate([self.fixed[place] for place in batch.records.tolist()])
        with torch.no_grad():
            vectors = self.table(batch.ids)
            stays = torch.from_numpy(fixed).to(vectors.device)[:, None]
            start = torch.where(stays, vectors, self.baseline.to(vectors))
        return start, vectors - start


def can_be_weighed(learner: Learner) -> bool:
    """Return whether a model reads word vectors, through which gradients pass."""
    frozen = any(head.frozen is not None for head in learner.heads.values())
    return learner.backbone.embedding is not None and not frozen


def require_table(learner: Learner) -> nn.Embedding:
    """Return the table of pieces of a model. Raises UserError if it has none, or learns from stored features."""
    table = learner.backbone.embedding
    if table is None or not can_be_weighed(learner):
        raise UserError(
            "Words cannot be weighed in this model: it reads no word vectors, or its encoder is frozen below an LSTM "
            "(--features). Fine-tune the encoder itself.",
            code="unsupported-model",
        )
    return table


@contextlib.contextmanager
def _reading(table: nn.Embedding, vectors: Tensor) -> Iterator[None]:
    """Give `vectors` (N, D') in place of what the table looks up, inside the block."""
    handle = table.register_forward_hook(lambda module, inputs, output: vectors)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def undisturbed(learner: Learner) -> Iterator[torch.device]:
    """Go without dropout and gradients of the weights inside the block; gives the model's device."""
    training = learner.training
    learnt = [weight for weight in learner.parameters() if weight.requires_grad]
    learner.eval().requires_grad_(False)
    try:
        with torch.inference_mode(False):
            yield next(learner.parameters()).device
    finally:
        for weight in learnt:
            weight.requires_grad_(True)
        learner.train(training)
