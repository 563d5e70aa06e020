"""The two halves of a batch: the same sequences with the same targets, in two batches of about as many tokens."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from osbert.data.batch import Batch, Target


def halves(batch: Batch) -> list[Batch]:
    """Return a batch as two, cut between sequences; one of a single sequence is returned as it is, alone."""
    sequences = len(batch.lengths)
    if sequences < 2:
        return [batch]
    ends = list(accumulate(batch.lengths))
    cut = min(range(1, sequences), key=lambda place: abs(2 * ends[place - 1] - ends[-1]))
    return [_run(batch, 0, cut), _run(batch, cut, sequences)]


def _run(batch: Batch, first: int, last: int) -> Batch:
    """Return sequences [first, last) of a batch."""
    begin = sum(batch.lengths[:first])
    end = begin + sum(batch.lengths[first:last])
    targets = {
        name: _within(target, begin, end) if target.per_token else _within(target, first, last)
        for name, target in batch.targets.items()
    }
    return replace(
        batch,
        ids=batch.ids[begin:end],
        positions=batch.positions[begin:end],
        segments=batch.segments[begin:end],
        order=None if batch.order is None else batch.order[begin:end],
        lengths=batch.lengths[first:last],
        starts=batch.starts[first:last] - begin,
        records=batch.records[first:last],
        targets={name: target for name, target in targets.items() if len(target.labels)},
    )


def _within(target: Target, first: int, last: int) -> Target:
    """Return the labels of tokens, or of sequences, [first, last)."""
    kept = (target.index >= first) & (target.index < last)
    labels = target.labels[kept]
    weights = None if target.weights is None else target.weights[kept]
    count = float(len(labels)) if weights is None else float(weights.sum())
    return replace(target, labels=labels, index=target.index[kept] - first, weights=weights, count=count)
