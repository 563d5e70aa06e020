"""Batch: the tensors of one micro-step. A flat run of tokens without padding.

N = all tokens of the batch, B = its sequences, M = the labels of one target. Only the attention kernel knows how
sequences lie in memory; no linear layer, norm or head ever sees a padding token.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osbert.data.example import Example, Integers
from osbert.data.examples import Examples, Targets
from osbert.data.ragged import Places, ranges, rows


@dataclass(frozen=True, kw_only=True)
class BatchTarget:
    """Labels of one objective: `labels` (M,), int64 classes or float32 numbers; `weights` (M,) or None for 1 each.

    `index` (M,): into the N tokens when `per_token`, else into the B sequences.
    """

    labels: Tensor
    index: Tensor
    per_token: bool
    weights: Tensor | None = None
    count: float = 0.0
    """What the summed loss is divided by: the number of labels, or the sum of their weights."""


TOKEN_COLUMNS = ("ids", "positions", "segments", "order", "unseen")
"""The columns of a batch that have a value for each token."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A flat run of tokens: `ids`, `positions`, `segments` (N,) int64; `order` (N,) int64 or None for 0 everywhere.

    `unseen` (N,): True on tokens that no token sees, None for False everywhere.

    `lengths`: tokens of each of the B sequences, plain integers that never leave the CPU. `starts` (B,): where each
    sequence begins in the run. `records` (B,): the record each sequence belongs to. `together`: whether a record's
    sequences must stay in one batch, since the loss compares them; `whole`: whether all sequences must.

    `source`: the texts that a decoder writes from, of each of the B sequences one, in the same order; None without a
    decoder. N, the targets and `read` are of the decoder's tokens alone.
    """

    ids: Tensor
    positions: Tensor
    segments: Tensor
    order: Tensor | None
    lengths: tuple[int, ...]
    starts: Tensor
    records: Tensor
    unseen: Tensor | None = None
    source: Batch | None = None
    targets: Mapping[str, BatchTarget] = field(default_factory=dict)
    together: bool = False
    whole: bool = False

    @property
    def tokens(self) -> int:
        """Return N."""
        return sum(self.lengths)

    @property
    def size(self) -> int:
        """Return how many tokens a pass reads: N, and those of the source."""
        return self.tokens + (0 if self.source is None else self.source.tokens)

    @cached_property
    def read(self) -> Tensor:
        """Return the tokens (R,), ascending, that carry labels or begin a sequence: most losses read no others."""
        indices = [target.index for target in self.targets.values() if target.per_token]
        return torch.cat([self.starts, *indices]).unique()

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Return how many tokens of each of the B sequences are in `read`."""
        firsts = torch.searchsorted(self.read, self.starts)
        return tuple(torch.diff(firsts, append=firsts.new_tensor([len(self.read)])).tolist())

    @property
    def places(self) -> Tensor:
        """Return 0, 1, 2, ... in every sequence (N,)."""
        return torch.from_numpy(_places(np.array(self.lengths, np.int64))).to(self.ids.device)

    @cached_property
    def consecutive(self) -> bool:
        """Return whether the positions are 0, 1, 2, ... in every sequence."""
        return torch.equal(self.positions, self.places)

    @cached_property
    def causal(self) -> bool:
        """Return whether the order is 0, 1, 2, ... in every sequence."""
        return self.order is not None and torch.equal(self.order, self.places)

    def with_targets(self, names: Container[str]) -> Batch:
        """Return the batch with no targets but those of some names."""
        return self.changed(targets={name: target for name, target in self.targets.items() if name in names})

    def changed(self, **columns: Any) -> Batch:
        """Return the batch with other `ids` or `targets`; what is known of its positions and its order stays known."""
        batch = replace(self, **columns)
        vars(batch).update({name: vars(self)[name] for name in ("consecutive", "causal") if name in vars(self)})
        return batch

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its tensors on `device`."""
        if device.type == "cpu":
            return self
        moved = {name: _moved(target, device) for name, target in self.targets.items()}
        columns: dict[str, Any] = {
            name: send(column, device)
            for name, column in vars(self).items()
            if name in (*TOKEN_COLUMNS, "starts", "records") and column is not None
        }
        source = None if self.source is None else self.source.to(device)
        batch = replace(self, targets=moved, source=source, **columns)
        # Found on the CPU: a GPU would make the host wait for them.
        known = {"reads": self.reads, "consecutive": self.consecutive, "causal": self.causal}
        vars(batch).update(read=send(self.read, device), **known)
        return batch


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return `tensor` on `device`; to a GPU it travels from pinned memory, while the host goes on."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def collate(examples: Sequence[Example]) -> Batch:
    """Lay examples end to end in one batch, longest first, so that the attention kernel meets runs of equal lengths.

    `records` of the batch keep each example's own record number, so the order given can always be restored.
    """
    return _batch(_sorted(Examples.of(examples)))


def micro_batches(examples: Sequence[Example], tokens: int, *, together: bool = False) -> list[Batch]:
    """Return examples as batches of at most `tokens` tokens each, sources included; as one when it is 0.

    A sequence longer than that stands alone; with `together` the sequences of a record are parted by nothing.

    >>> from osbert.data.pack import Packer
    >>> from osbert.text.tokenizer import SPECIALS, Tokenizer
    >>> packer = Packer(tokenizer=Tokenizer([*SPECIALS, "a"]), length=16)
    >>> examples = [packer.single(*packer.run("a " * pieces)) for pieces in (3, 1, 2, 2)]
    >>> [batch.lengths for batch in micro_batches(examples, 8)]
    [(5,), (4, 4), (3,)]
    """
    if not len(examples):
        return []
    columns = Examples.of(examples)
    if together:
        columns, sizes, counts = _by_record(columns)
    else:
        columns = _sorted(columns)
        sizes, counts = columns.sizes, np.ones_like(columns.lengths)
    cuts = _cuts(sizes.tolist(), tokens) if tokens else [(0, len(sizes))]
    ends = np.append(0, np.cumsum(counts)).tolist()
    parts = (columns[ends[first] : ends[last]] for first, last in cuts)
    return [replace(_batch(_sorted(part)), together=together) for part in parts]


def _cuts(lengths: Sequence[int], tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the runs [first, last) of some lengths that sum to at most `tokens`, each as long as it can be."""
    first = size = 0
    for last, length in enumerate(lengths):
        if last > first and size + length > tokens:
            yield first, last
            first, size = last, 0
        size += length
    yield first, len(lengths)


def _by_record(examples: Examples) -> tuple[Examples, Places, Places]:
    """Return examples with those of a record side by side, largest records first; the records' tokens and sequences."""
    _, numbers, counts = np.unique(examples.records, return_inverse=True, return_counts=True)
    sizes = np.bincount(numbers, examples.sizes).astype(np.int64)
    order = np.argsort(-sizes, kind="stable")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return examples.take(np.argsort(ranks[numbers], kind="stable")), sizes[order], counts[order]


def _sorted(examples: Examples) -> Examples:
    """Return examples longest first, the longest source before all; those of one length stay in their order."""
    if examples.source is not None:  # an encoder, too, meets runs of equal lengths
        return examples.take(np.lexsort((-examples.lengths, -examples.source.lengths)))
    if (examples.lengths[1:] <= examples.lengths[:-1]).all():
        return examples
    return examples.take(np.argsort(-examples.lengths, kind="stable"))


def _batch(examples: Examples) -> Batch:
    return Batch(
        ids=_tensor(examples.ids),
        positions=_tensor(_places(examples.lengths) if examples.positions is None else examples.positions),
        segments=_tensor(examples.segments),
        order=None if examples.order is None else _tensor(examples.order),
        lengths=tuple(examples.lengths.tolist()),
        starts=torch.from_numpy(examples.starts),
        records=torch.from_numpy(examples.records),
        unseen=None if examples.unseen is None else torch.from_numpy(examples.unseen),
        source=None if examples.source is None else _batch(examples.source),
        targets={name: _target(targets) for name, targets in examples.targets.items() if len(targets.labels)},
    )


def _places(lengths: Places) -> Places:
    """Return 0, 1, 2, ... for each of some sequences."""
    return ranges(np.zeros_like(lengths), lengths)


def _target(targets: Targets) -> BatchTarget:
    """Return targets as tensors: classes as int64 and numbers as float32, the types the losses take."""
    whole = np.issubdtype(targets.labels.dtype, np.integer)
    index = rows(targets.counts)[0] if targets.index is None else targets.index
    weights = None if targets.weights is None else torch.from_numpy(targets.weights.astype(np.float32))
    return BatchTarget(
        labels=torch.from_numpy(targets.labels.astype(np.int64 if whole else np.float32, copy=False)),
        index=torch.from_numpy(index),
        per_token=targets.index is not None,
        weights=weights,
        count=float(len(targets.labels)) if weights is None else float(weights.sum()),
    )


def _tensor(column: Integers) -> Tensor:
    return torch.from_numpy(column.astype(np.int64, copy=False))


def _moved(target: BatchTarget, device: torch.device) -> BatchTarget:
    weights = None if target.weights is None else send(target.weights, device)
    return replace(target, labels=send(target.labels, device), index=send(target.index, device), weights=weights)
