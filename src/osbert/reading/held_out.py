"""Rows held out for development, where there is no file with some: a share of the training rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray


def hold_out(labels: Sequence[Hashable], share: float, *, stratified: bool = True) -> NDArray[np.bool_]:
    """Return which of n rows (n,) are held out for development: the same ones every time, for the same rows.

    `stratified`: every label gives its share, and at least one row where it has two or more. Otherwise the share is
    drawn from all rows alike.
    """
    rng = np.random.default_rng(0)
    groups: dict[Hashable, list[int]] = {}
    for place, label in enumerate(labels):
        groups.setdefault(label if stratified else None, []).append(place)
    held = np.zeros(len(labels), np.bool_)
    for places in groups.values():
        size = _size(len(places), share)
        held[rng.permutation(places)[:size]] = True
    return held


def hold_out_known(kinds: Sequence[Collection[Hashable]], share: float) -> NDArray[np.bool_]:
    """Return which of n rows (n,) are held out, none of which has the last of its `kinds`: all can be learnt.

    Where no row has, they are those that `hold_out` draws from all rows alike.
    """
    left = Counter(kind for found in kinds for kind in found)
    size = _size(len(kinds), share)
    held = np.zeros(len(kinds), np.bool_)
    for place in np.random.default_rng(0).permutation(len(kinds)).tolist():
        if size > 0 and all(left[kind] > 1 for kind in kinds[place]):
            held[place] = True
            left.subtract(kinds[place])
            size -= 1
    return held


def _size(rows: int, share: float) -> int:
    """Return how many of some rows are a share: at least one of them, and never all."""
    return min(max(round(share * rows), 1), rows - 1)
