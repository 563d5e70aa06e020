"""Halves a batch, for a retry when memory runs out: the same sequences and targets in two batches of similar size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osbert.data.batch import TOKEN_COLUMNS, Batch, BatchTarget
from osbert.data.ragged import Places, begins, ranges


def halves(batch: Batch) -> list[Batch]:
    """Split a batch between sequences, or between records if `batch.together`, into two of similar size.

    A batch of one sequence or record, or with `batch.whole`, is returned alone and unchanged.
    """
    if batch.whole:
        return [batch]
    lengths = np.array(batch.lengths) + (0 if batch.source is None else np.array(batch.source.lengths))
    units = np.arange(len(lengths))
    if batch.together:
        _, units = np.unique(batch.records.numpy(), return_inverse=True)
    # Cumulative tokens of the units (sequences or records) that must not be split.
    ends = np.cumsum(np.bincount(units, lengths)).tolist()
    if len(ends) < 2:
        return [batch]
    # The cut after which the cumulative size is nearest to half of the total.
    cut = min(range(1, len(ends)), key=lambda index: abs(2 * ends[index - 1] - ends[-1]))
    return [_part(batch, np.flatnonzero(half)) for half in (units < cut, units >= cut)]


def _part(batch: Batch, rows: Places) -> Batch:
    """Return the sequences with the indices `rows`, ascending, as a batch."""
    lengths = np.array(batch.lengths)[rows]
    token_indices = torch.from_numpy(ranges(batch.starts.numpy()[rows], lengths))
    targets = {
        name: _within(target, token_indices, batch.tokens)
        if target.per_token
        else _within(target, torch.from_numpy(rows), len(batch.lengths))
        for name, target in batch.targets.items()
    }
    columns: dict[str, Any] = {name: getattr(batch, name) for name in TOKEN_COLUMNS}
    columns = {name: None if column is None else column[token_indices] for name, column in columns.items()}
    return replace(
        batch,
        **columns,
        lengths=tuple(lengths.tolist()),
        starts=torch.from_numpy(begins(lengths)),
        records=batch.records[torch.from_numpy(rows)],
        source=None if batch.source is None else _part(batch.source, rows),
        targets={name: target for name, target in targets.items() if len(target.labels)},
    )


def _within(target: BatchTarget, indices: Tensor, count: int) -> BatchTarget:
    """Return the labels of those of `count` tokens or sequences that have the indices `indices`, reindexed."""
    # A map from old to new indices; -1 for those that are not in this half, whose labels are dropped.
    moved = torch.full((count,), -1, dtype=torch.int64).index_copy_(0, indices, torch.arange(len(indices)))[
        target.index
    ]
    in_half = moved >= 0
    labels = target.labels[in_half]
    weights = None if target.weights is None else target.weights[in_half]
    return replace(
        target,
        labels=labels,
        index=moved[in_half],
        weights=weights,
        count=float(len(labels)) if weights is None else float(weights.sum()),
    )
