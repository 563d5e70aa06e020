"""Splits of training rows: a fraction held out for development, or folds in which every row is held out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray


def hold_out(labels: Sequence[Hashable], fraction: float, *, stratified: bool = True) -> NDArray[np.bool_]:
    """Return which of n rows (n,) are held out for development; the same for the same rows.

    `stratified`: the fraction is taken from each label, at least one row if it has two or more. Otherwise it is sampled
    from all rows together.
    """
    rng = np.random.default_rng(0)
    groups: dict[Hashable, list[int]] = {}
    for row, label in enumerate(labels):
        groups.setdefault(label if stratified else None, []).append(row)
    held = np.zeros(len(labels), np.bool_)
    for rows in groups.values():
        size = _size(len(rows), fraction)
        held[rng.permutation(rows)[:size]] = True
    return held


def hold_out_known(kinds: Sequence[Collection[Hashable]], fraction: float) -> NDArray[np.bool_]:
    """Return which of n rows (n,) are held out, so that each of their `kinds` stays in a training row.

    If rows have no kinds, they are sampled from all rows, as by `hold_out` without labels.
    """
    left = Counter(kind for row_kinds in kinds for kind in row_kinds)
    size = _size(len(kinds), fraction)
    held = np.zeros(len(kinds), np.bool_)
    for row in np.random.default_rng(0).permutation(len(kinds)).tolist():
        # A row may only go if every one of its kinds stays in some other training row.
        if size > 0 and all(left[kind] > 1 for kind in kinds[row]):
            held[row] = True
            left.subtract(kinds[row])
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
    for row, group in enumerate(groups or range(len(labels))):
        members.setdefault(group, []).append(row)
    if len(members) < folds:
        what = "groups of rows" if groups else "rows"
        raise ValueError(f"there are {folds} folds, but {len(members)} {what}")
    order = np.random.default_rng(0).permutation(len(members)).tolist()
    dealt = [*members.values()]
    totals = Counter(labels)
    counts = {label: np.zeros(folds) for label in totals}
    sizes = np.zeros(folds)
    row_folds = np.zeros(len(labels), np.int64)
    for rows in sorted((dealt[number] for number in order), key=len, reverse=True):
        label_counts = Counter(labels[row] for row in rows)
        # Cost of each fold: the fraction of each label that it has already, weighted by the labels of this group.
        costs = np.sum([count * counts[label] / totals[label] for label, count in label_counts.items()], axis=0)
        fold = min(range(folds), key=lambda number: (costs[number], sizes[number]))
        row_folds[rows] = fold
        sizes[fold] += len(rows)
        for label, count in label_counts.items():
            counts[label][fold] += count
    return row_folds


def _size(rows: int, fraction: float) -> int:
    """Return the number of rows in a fraction: at least one and never all."""
    return min(max(round(fraction * rows), 1), rows - 1)
