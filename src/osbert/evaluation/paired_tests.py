"""Two models on the same rows: McNemar's test of accuracy, the paired bootstrap for any score, Holm's correction.

A paired test uses only the differences; rows that are easy or hard for both models add no variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osbert.evaluation.bootstrap import percentiles


@dataclass(frozen=True, kw_only=True)
class McNemar:
    """McNemar's exact test (1947): the rows that only one of two models has right, and the two-sided `p_value`."""

    only_first: int
    only_second: int
    p_value: float


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """The first model's score minus the second's, its 95% interval and two-sided `p_value`, by the paired bootstrap."""

    difference: float
    interval: tuple[float, float]
    p_value: float


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """Test whether two models are right equally often; `first` and `second` (n,): whether each is right.

    The exact form of McNemar's test (1947): if the models are equally good, the rows that only one of them has right
    are split binomially with probability 1/2.

    >>> mcnemar([True] * 6 + [False], [False] * 5 + [True] * 2)
    McNemar(only_first=5, only_second=1, p_value=0.21875)
    """
    from scipy.stats import binom

    pairs = list(zip(first, second, strict=True))
    only_first, only_second = (
        sum(first_right and not second_right for first_right, second_right in pairs),
        sum(second_right and not first_right for first_right, second_right in pairs),
    )
    p_value = min(1.0, 2 * float(binom.cdf(min(only_first, only_second), only_first + only_second, 0.5)))
    return McNemar(only_first=only_first, only_second=only_second, p_value=p_value)


def score_difference(
    scores: tuple[float, float], first: NDArray[np.float64], second: NDArray[np.float64]
) -> ScoreDifference:
    """Return the difference of two models' scores, from their scores on the same R samples of rows, (R,) each.

    The p-value is twice the smaller fraction of samples on one side of 0; ties count on both (Koehn 2004). Samples with
    a NaN score are ignored; if there are no others, the p-value is 1.
    """
    differences = (first - second)[~np.isnan(first - second)]
    rare = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return ScoreDifference(
        difference=scores[0] - scores[1],
        interval=percentiles(differences),
        # +1: the observed data count as one more sample, so that the p-value is never 0.
        p_value=min(1.0, 2 * (rare + 1) / (len(differences) + 1)),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests by Holm (1979), which controls the probability of any false positive.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        # The maximum keeps corrected p-values in the order of the original ones.
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected
