"""The two halves of a batch: the same sequences with the same targets, in two batches of about as many tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osbert.data.batch import TOKEN_COLUMNS, Batch, BatchTarget
from osbert.data.ragged import Places, begins, ranges


def halves(batch: Batch) -> list[Batch]:
    """Return a batch as two, cut between sequences, or records if it holds them together.

    One of a single sequence, or record, or that must stay whole, is returned as it is, alone.
    """
    if batch.whole:
        return [batch]
    lengths = np.array(batch.lengths) + (0 if batch.source is None else np.array(batch.source.lengths))
    units = np.arange(len(lengths))
    if batch.together:
        _, units = np.unique(batch.records.numpy(), return_inverse=True)
    ends = np.cumsum(np.bincount(units, lengths)).tolist()
    if len(ends) < 2:
        return [batch]
    cut = min(range(1, len(ends)), key=lambda place: abs(2 * ends[place - 1] - ends[-1]))
    return [_part(batch, np.flatnonzero(half)) for half in (units < cut, units >= cut)]


def _part(batch: Batch, rows: Places) -> Batch:
    """Return some sequences of a batch, `rows` in ascending order."""
    lengths = np.array(batch.lengths)[rows]
    places = torch.from_numpy(ranges(batch.starts.numpy()[rows], lengths))
    targets = {
        name: _within(target, places, batch.tokens)
        if target.per_token
        else _within(target, torch.from_numpy(rows), len(batch.lengths))
        for name, target in batch.targets.items()
    }
    columns: dict[str, Any] = {name: getattr(batch, name) for name in TOKEN_COLUMNS}
    columns = {name: None if column is None else column[places] for name, column in columns.items()}
    return replace(
        batch,
        **columns,
        lengths=tuple(lengths.tolist()),
        starts=torch.from_numpy(begins(lengths)),
        records=batch.records[torch.from_numpy(rows)],
        source=None if batch.source is None else _part(batch.source, rows),
        targets={name: target for name, target in targets.items() if len(target.labels)},
    )


def _within(target: BatchTarget, places: Tensor, count: int) -> BatchTarget:
    """Return the labels of some of `count` tokens, or sequences, at their new places."""
    moved = torch.full((count,), -1).index_copy_(0, places, torch.arange(len(places)))[target.index]
    kept = moved >= 0
    labels = target.labels[kept]
    weights = None if target.weights is None else target.weights[kept]
    return replace(
        target,
        labels=labels,
        index=moved[kept],
        weights=weights,
        count=float(len(labels)) if weights is None else float(weights.sum()),
    )
