"""Rows held out of the training rows: a fraction of them for development, or every row once, in folds."""

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


def deal_folds(labels: Sequence[Hashable], folds: int, *, groups: Sequence[Hashable] = ()) -> NDArray[np.int64]:
    """Return the fold of each of n rows (n,), from 0: the same ones every time, for the same rows.

    The rows of a group are in one fold; without `groups` each row is a group. Groups are dealt from large to small,
    those of a size in random order: each goes to the fold that has the fewest of its labels, in proportion to how many
    of them there are, and of equal ones to the smallest. Raises ValueError if there are fewer groups than folds.

    >>> deal_folds(["a", "a", "a", "a", "b", "b"], 2).tolist().count(0)
    3
    """
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups or range(len(labels))):
        members.setdefault(group, []).append(place)
    if len(members) < folds:
        raise ValueError(f"{len(members)} groups of rows cannot be dealt into {folds} folds")
    order = np.random.default_rng(0).permutation(len(members)).tolist()
    dealt = [*members.values()]
    totals = Counter(labels)
    counts = {label: np.zeros(folds) for label in totals}
    sizes = np.zeros(folds)
    found = np.zeros(len(labels), np.int64)
    for places in sorted((dealt[number] for number in order), key=len, reverse=True):
        own = Counter(labels[place] for place in places)
        costs = np.sum([count * counts[label] / totals[label] for label, count in own.items()], axis=0)
        fold = min(range(folds), key=lambda number: (costs[number], sizes[number]))
        found[places] = fold
        sizes[fold] += len(places)
        for label, count in own.items():
            counts[label][fold] += count
    return found


def _size(rows: int, share: float) -> int:
    """Return how many of some rows are a fraction of them: at least one, and never all."""
    return min(max(round(share * rows), 1), rows - 1)
