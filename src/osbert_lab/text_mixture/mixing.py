"""How many rows of each data set an epoch has: by their numbers, with an artificial limit and a temperature.

Raffel et al. 2020, section 3.5.2: of N data sets with e_1, ..., e_N rows, a row is of the m-th one with the probability
r_m = min(e_m, K) / sum of min(e_n, K), which a temperature T raises to the power 1 / T and divides by their sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def mixing_rates(sizes: Sequence[int], *, limit: int, temperature: float) -> NDArray[np.float64]:
    """Return the probability of each data set (N,), given its number of rows (N,), at least 1 each.

    >>> mixing_rates([300, 100], limit=1000, temperature=1).tolist()
    [0.75, 0.25]
    >>> mixing_rates([900, 100], limit=400, temperature=2).round(3).tolist()
    [0.667, 0.333]
    """
    # The largest is divided out first, so that no power overflows.
    limited = np.minimum(sizes, limit).astype(np.float64)
    weights = (limited / limited.max()) ** (1 / temperature)
    return weights / weights.sum()


def epoch_rows(rates: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return how many of `count` rows are of each data set (N,): the nearest whole numbers, at least 1 where possible.

    >>> epoch_rows(np.array([0.5, 0.3, 0.2]), 8).tolist()
    [4, 2, 2]
    """
    expected = rates * count
    rows = expected.astype(np.int64)
    # The largest remainders are rounded up.
    short = np.argsort(rows - expected, kind="stable")[: count - int(rows.sum())]
    rows[short] += 1
    for index in np.flatnonzero(rows == 0) if count >= len(rates) else ():
        rows[rows.argmax()] -= 1
        rows[index] = 1
    return rows


def draw_rows(owners: NDArray[np.intp], counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the rows of an epoch (n,) in random order: `counts` (N,) of each data set.

    `owners` (n,): the data set of each row. If a data set has fewer rows than its count, all are repeated equally
    often, up to one; if it has more, those of this epoch are drawn without replacement.
    """
    chosen = []
    for index, count in enumerate(counts.tolist()):
        members = np.flatnonzero(owners == index)
        times, rest = divmod(count, len(members))
        chosen += [np.tile(members, times), rng.permutation(members)[:rest]]
    return rng.permutation(np.concatenate(chosen))
