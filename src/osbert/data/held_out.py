"""Rows held out for development, where there is no file with some: a share of the training rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

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
        size = min(max(round(share * len(places)), 1), len(places) - 1)
        held[rng.permutation(places)[:size]] = True
    return held
