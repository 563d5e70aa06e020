"""Attribution of a score to tokens: integrated gradients, their interpolation, and occlusion, which checks them.

Integrated gradients give how much each token moves the score from that of the baseline to its own.

Sundararajan, Taly and Yan 2017, equation 1: the weight of a token is the integral, along the straight line from the
baseline x' to the text x, of the score's derivative in the direction of that token. The weights sum to F(x) - F(x').
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
from osbert.data.example import Booleans, Example, Integers
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, batches
from osbert.models.contract import Learner
from osbert.models.initialisation import copy_modules

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
    """Sequences between a baseline and the text: examples, a score, and the baseline of missing words.

    A hook on the table of pieces substitutes their vectors; positions, segments and norms are computed as usual, so
    only the words vary. It is on a copy of the model, so that other threads use the model as usual.

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


MOST_POINTS = 256
"""Points are doubled up to this number while the completeness error is above the tolerance."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The attribution of a group of sequences that make one score together: weights (n,) of each one's tokens.

    `score`, `baseline`: F(x) and F(x'). `points`: the number of points at which gradients were taken.
    """

    score: float
    baseline: float
    weights: Sequence[NDArray[np.float64]] = ()
    points: int = 0

    @property
    def error(self) -> float:
        """Return the completeness error, |sum of weights - (F(x) - F(x'))| / |F(x) - F(x')|."""
        change = self.score - self.baseline
        return abs(sum(float(token_weights.sum()) for token_weights in self.weights) - change) / max(abs(change), 1e-9)


def attribute(
    line: Interpolation, groups: Sequence[range], *, points: int, tolerance: float = np.inf
) -> list[Attribution]:
    """Return the attribution of each group of sequences of a line.

    Groups whose completeness error exceeds `tolerance` are computed again with twice the points, up to MOST_POINTS.
    """
    ends = end_points(line, groups)
    attributions: dict[int, Attribution] = {}
    rough = list(range(len(groups)))
    while rough:
        chosen = [index for group in rough for index in groups[group]]
        parts, point_weights = gauss_legendre(points)
        slopes = line.slopes([line.at(index, part) for index in chosen for part in parts.tolist()])
        # The slopes of one sequence at all its points are consecutive, (points, n): their integral over the line.
        integrals = (
            point_weights @ np.stack(slopes[first : first + points]) for first in range(0, len(slopes), points)
        )
        weights = dict(zip(chosen, integrals))
        for group in rough:
            group_weights = [weights[index] for index in groups[group]]
            # The previous weights of a group that is computed again are dropped: Gauss nodes are not nested.
            attributions[group] = replace(ends[group], weights=group_weights, points=points)
        points *= 2
        rough = [group for group in rough if attributions[group].error > tolerance and points <= MOST_POINTS]
    return [attributions[group] for group in range(len(groups))]


def end_points(line: Interpolation, groups: Sequence[range]) -> list[Attribution]:
    """Return the scores of each group of sequences and of its baseline, without weights."""
    indices = range(len(line.examples))
    # All texts (part 1) and all baselines (part 0) in one list, split into two rows.
    scores, baselines = line.scores([line.at(index, part) for part in (1.0, 0.0) for index in indices]).reshape(2, -1)
    sums = [(float(scores[group].sum()), float(baselines[group].sum())) for group in groups]
    return [Attribution(score=score, baseline=baseline) for score, baseline in sums]


def gauss_legendre(points: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes in (0, 1) and their weights for integrals over [0, 1]; exact for degrees below 2 * points.

    >>> places, weights = gauss_legendre(3)
    >>> round(float(weights @ places**5), 12)
    0.166666666667
    """
    nodes, weights = np.polynomial.legendre.leggauss(points)
    # leggauss integrates over [-1, 1].
    return (nodes + 1) / 2, weights / 2


def occlusion(
    line: Interpolation, groups: Sequence[range], words: Sequence[Integers], chosen: Sequence[Integers]
) -> list[NDArray[np.float64]]:
    """Return for each group of sequences the drop of its score without each of its `chosen` words (C,).

    `words` (n,) for each sequence: the word of each token, -1 for none.
    """
    blends: list[Blend] = []
    for group, wanted in zip(groups, chosen, strict=True):
        for index in group:
            present = wanted[np.isin(wanted, words[index])]
            parts = ((words[index] != word).astype(np.float32) for word in present)
            # For each sequence: first the whole text, then one copy without each of its words.
            blends += [line.at(index, 1.0), *(Blend(index, part) for part in parts)]
    scores = line.scores(blends)
    drops_by_group = []
    begin = 0
    for group, wanted in zip(groups, chosen, strict=True):
        drops = np.zeros(len(wanted))
        for index in group:
            # A word in several windows loses the sum of its drops in them.
            is_present = np.isin(wanted, words[index])
            end = begin + 1 + int(is_present.sum())
            drops[is_present] += scores[begin] - scores[begin + 1 : end]
            begin = end
        drops_by_group.append(drops)
    return drops_by_group


def evenly_spaced(weights: NDArray[np.float64], count: int) -> NDArray[np.integer]:
    """Return the indices of `count` words, evenly spaced in the order of their weights (W,); 0: all words.

    They include the highest and the lowest weight. Their rank correlation estimates that of all words.

    >>> evenly_spaced(np.array([0.3, -1.0, 0.1, 0.2, 0.5]), 3).tolist()
    [1, 3, 4]
    """
    if not 0 < count < len(weights):
        return np.arange(len(weights))
    ranks = np.linspace(0, len(weights) - 1, count).round().astype(int)
    return np.sort(np.argsort(weights, kind="stable")[ranks])
