"""Integrated gradients: how much each token moves a score from that of the baseline to its own.

Sundararajan, Taly and Yan 2017, equation 1: the weight of a token is the integral, along the straight line from the
baseline x' to the text x, of the score's derivative in the direction of that token. The weights sum to F(x) - F(x').
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from osbert.analysis.interpolation import Interpolation

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
