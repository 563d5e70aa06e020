"""Splits of training rows: a fraction held out for development, or folds in which every row is held out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray


def hold_out(labels: Sequence[Hashable], share: float, *, stratified: bool = True) -> NDArray[np.bool_]:
    """Return which of n rows (n,) are held out for development; the same for the same rows.

    `stratified`: the fraction is taken from each label, at least one row if it has two or more. Otherwise it is sampled
    from all rows together.
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
    """Return which of n rows (n,) are held out, so that each of their `kinds` stays in a training row.

    If rows have no kinds, they are sampled from all rows, as by `hold_out` without labels.
    """
    left = Counter(kind for found in kinds for kind in found)
    size = _size(len(kinds), share)
    held = np.zeros(len(kinds), np.bool_)
    for place in np.random.default_rng(0).permutation(len(kinds)).tolist():
        # A row may only go if every one of its kinds stays in some other training row.
        if size > 0 and all(left[kind] > 1 for kind in kinds[place]):
            held[place] = True
            left.subtract(kinds[place])
            size -= 1
    return held


def deal_folds(labels: Sequence[Hashable], folds: int, *, groups: Sequence[Hashable] = ()) -> NDArray[np.int64]:
    """Return the fold of each of n rows (n,), from 0; the same for the same rows.

    Rows of a group are in one fold; without `groups` each row is a group. Groups are assigned from large to small,
    those of equal size in random order. Each goes to the fold with the lowest fraction of its labels; ties go to the
    smallest fold. Raises ValueError if there are fewer groups than folds.

    >>> deal_folds(["a", "a", "a", "a", "b", "b"], 2).tolist().count(0)
    3
    """
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups or range(len(labels))):
        members.setdefault(group, []).append(place)
    if len(members) < folds:
        what = "groups of rows" if groups else "rows"
        raise ValueError(f"there are {folds} folds, but {len(members)} {what}")
    order = np.random.default_rng(0).permutation(len(members)).tolist()
    dealt = [*members.values()]
    totals = Counter(labels)
    counts = {label: np.zeros(folds) for label in totals}
    sizes = np.zeros(folds)
    found = np.zeros(len(labels), np.int64)
    for places in sorted((dealt[number] for number in order), key=len, reverse=True):
        own = Counter(labels[place] for place in places)
        # Cost of each fold: the fraction of each label that it has already, weighted by the labels of this group.
        costs = np.sum([count * counts[label] / totals[label] for label, count in own.items()], axis=0)
        fold = min(range(folds), key=lambda number: (costs[number], sizes[number]))
        found[places] = fold
        sizes[fold] += len(places)
        for label, count in own.items():
            counts[label][fold] += count
    return found


def _size(rows: int, share: float) -> int:
    """Return the number of rows in a fraction: at least one and never all."""
    return min(max(round(share * rows), 1), rows - 1)
