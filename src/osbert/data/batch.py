"""Batch: the tensors of one micro-step. A flat run of tokens without padding.

N = all tokens of the batch, B = its sequences, M = the labels of one target. Only the attention kernel knows how
sequences lie in memory; no linear layer, norm or head ever sees a padding token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from osbert.data.example import Example
from osbert.data.example import Target as ExampleTarget


@dataclass(frozen=True, kw_only=True)
class Target:
    """Labels of one objective: `labels` (M,), int64 classes or float32 numbers; `weights` (M,) or None for 1 each.

    `index` (M,): into the N tokens when `per_token`, else into the B sequences.
    """

    labels: Tensor
    index: Tensor
    per_token: bool
    weights: Tensor | None = None
    count: float = 0.0
    """What the summed loss is divided by: the number of labels, or the sum of their weights."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A flat run of tokens: `ids`, `positions`, `segments` (N,) int64; `order` (N,) int64 or None for 0 everywhere.

    `lengths`: tokens of each of the B sequences, plain integers that never leave the CPU. `starts` (B,): where each
    sequence begins in the run. `records` (B,): the record each sequence belongs to.
    """

    ids: Tensor
    positions: Tensor
    segments: Tensor
    order: Tensor | None
    lengths: tuple[int, ...]
    starts: Tensor
    records: Tensor
    targets: Mapping[str, Target] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Return N."""
        return sum(self.lengths)

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its tensors on `device`."""
        if device.type == "cpu":
            return self
        moved = {name: _moved(target, device) for name, target in self.targets.items()}
        columns = {
            name: getattr(self, name).to(device) for name in ("ids", "positions", "segments", "starts", "records")
        }
        return replace(self, targets=moved, order=None if self.order is None else self.order.to(device), **columns)


def collate(examples: Sequence[Example]) -> Batch:
    """Lay examples end to end in one batch, longest first, so that the attention kernel meets runs of equal lengths.

    `records` of the batch keep each example's own record number, so the order given can always be restored.
    """
    examples = sorted(examples, key=len, reverse=True)
    lengths = np.array([len(example) for example in examples], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    ordered = any(example.order is not None for example in examples)
    return Batch(
        ids=_flat([example.ids for example in examples]),
        positions=torch.from_numpy(np.arange(lengths.sum(), dtype=np.int64) - np.repeat(starts, lengths)),
        segments=_flat([example.segments for example in examples]),
        order=_flat([_order(example) for example in examples]) if ordered else None,
        lengths=tuple(lengths.tolist()),
        starts=torch.from_numpy(starts),
        records=torch.tensor([example.record for example in examples]),
        targets=_targets(examples, starts),
    )


def split(examples: Sequence[Example], *, tokens: int) -> Iterator[list[Example]]:
    """Cut examples into groups of at most `tokens` tokens each (a longer example stands alone), longest first."""
    group: list[Example] = []
    size = 0
    for example in sorted(examples, key=len, reverse=True):
        if group and size + len(example) > tokens:
            yield group
            group, size = [], 0
        group.append(example)
        size += len(example)
    if group:
        yield group


def _flat(columns: Sequence[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(columns).astype(np.int64))


def _order(example: Example) -> np.ndarray:
    return np.zeros(len(example), dtype=np.int64) if example.order is None else example.order


def _targets(examples: Sequence[Example], starts: np.ndarray) -> dict[str, Target]:
    names = dict.fromkeys(name for example in examples for name in example.targets)
    return {name: _target([example.targets.get(name) for example in examples], starts) for name in names}


def _target(columns: Sequence[ExampleTarget | None], starts: np.ndarray) -> Target:
    present = [(place, target) for place, target in enumerate(columns) if target is not None]
    per_token = present[0][1].index is not None
    labels = _labels(np.concatenate([target.labels for _, target in present]))
    index = np.concatenate(
        [target.index + starts[place] if target.index is not None else np.array([place]) for place, target in present]
    )
    weights = None
    if any(target.weights is not None for _, target in present):
        parts = [
            np.ones(len(t.labels), np.float32) if t.weights is None else t.weights.astype(np.float32)
            for _, t in present
        ]
        weights = torch.from_numpy(np.concatenate(parts))
    count = float(len(labels)) if weights is None else float(weights.sum())
    return Target(
        labels=labels, index=torch.from_numpy(index.astype(np.int64)), per_token=per_token, weights=weights, count=count
    )


def _labels(labels: np.ndarray) -> Tensor:
    """Return classes as int64 and numbers as float32: the types the losses take."""
    return torch.from_numpy(labels.astype(np.int64 if np.issubdtype(labels.dtype, np.integer) else np.float32))


def _moved(target: Target, device: torch.device) -> Target:
    weights = None if target.weights is None else target.weights.to(device)
    return replace(target, labels=target.labels.to(device), index=target.index.to(device), weights=weights)
