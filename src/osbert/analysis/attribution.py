"""Attribution of a score to tokens: integrated gradients, and occlusion, which is slower and checks them.

Integrated gradients give how much each token moves the score from that of the baseline to its own.

Sundararajan, Taly and Yan 2017, equation 1: the weight of a token is the integral, along the straight line from the
baseline x' to the text x, of the score's derivative in the direction of that token. The weights sum to F(x) - F(x').
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from osbert.analysis.interpolation import Blend, Interpolation
from osbert.data.example import Integers

MOST_POINTS = 256


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
        weights = dict(zip(chosen, _integrals(line, chosen, points)))
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


def _integrals(line: Interpolation, indices: Sequence[int], points: int) -> list[NDArray[np.float64]]:
    """Return for each sequence the integral over the line of the slopes (n,) of its tokens."""
    parts, weights = gauss_legendre(points)
    slopes = line.slopes([line.at(index, part) for index in indices for part in parts.tolist()])
    # The slopes of one sequence at all its points are consecutive: (points, n).
    return [weights @ np.stack(slopes[first : first + points]) for first in range(0, len(slopes), points)]


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
