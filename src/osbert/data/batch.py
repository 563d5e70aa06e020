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
    """Divisor of the summed loss: the number of labels, or the sum of their weights."""


TOKEN_COLUMNS = ("ids", "positions", "segments", "order", "unseen")
"""The columns of a batch with one value per token."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A flat run of tokens: `ids`, `positions`, `segments` (N,) int64; `order` (N,) int64 or None for 0 everywhere.

    `unseen` (N,): True on tokens that no token attends to, None for False everywhere.

    `lengths`: tokens in each of the B sequences, plain integers that never leave the CPU. `starts` (B,): index of each
    sequence's first token. `records` (B,): the record of each sequence. `together`: whether the sequences of a record
    must stay in one batch because the loss compares them; `whole`: whether all sequences must.

    `source`: the input of the encoder of an encoder-decoder, one sequence for each of the B, in the same order; None
    without a decoder. N, the targets and `read` refer to the decoder's tokens only.
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
        """Return N, the number of tokens without those of the source."""
        return sum(self.lengths)

    @property
    def size(self) -> int:
        """Return the number of tokens in a forward pass: N plus the tokens of the source."""
        return self.tokens + (0 if self.source is None else self.source.tokens)

    @cached_property
    def read(self) -> Tensor:
        """Return the indices (R,), ascending, of tokens with labels and of first tokens; most losses need no others."""
        indices = [target.index for target in self.targets.values() if target.per_token]
        # unique() also sorts: `reads` relies on that.
        return torch.cat([self.starts, *indices]).unique()

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Return the number of `read` tokens in each of the B sequences."""
        # Every start is in `read`, so each sequence's part of `read` begins exactly where its start is found.
        firsts = torch.searchsorted(self.read, self.starts)
        return tuple(torch.diff(firsts, append=firsts.new_tensor([len(self.read)])).tolist())

    @property
    def places(self) -> Tensor:
        """Return the index of each token in its own sequence (N,): 0, 1, 2, ..."""
        return torch.from_numpy(_places(np.array(self.lengths, np.int64))).to(self.ids.device)

    @cached_property
    def consecutive(self) -> bool:
        """Return whether the positions are 0, 1, 2, ... in every sequence."""
        return torch.equal(self.positions, self.places)

    @cached_property
    def causal(self) -> bool:
        """Return whether the order is 0, 1, 2, ... in every sequence, so that a causal kernel can be used."""
        return self.order is not None and torch.equal(self.order, self.places)

    def with_targets(self, names: Container[str]) -> Batch:
        """Return the batch with only the targets in `names`."""
        return self.replace_columns(targets={name: target for name, target in self.targets.items() if name in names})

    def replace_columns(self, **columns: Any) -> Batch:
        """Return the batch with other `ids` or `targets`. Cached properties of positions and order are kept."""
        batch = replace(self, **columns)
        # A cached_property stores its value in __dict__; one that has not been computed yet stays so.
        vars(batch).update({name: vars(self)[name] for name in ("consecutive", "causal") if name in vars(self)})
        return batch

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its tensors on `device`."""
        if device.type == "cpu":
            return self
        moved = {name: _send_target(target, device) for name, target in self.targets.items()}
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
    """Return `tensor` on `device`. Copies to a GPU are asynchronous, from pinned memory."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def collate(examples: Sequence[Example]) -> Batch:
    """Concatenate examples to one batch, longest first, so that sequences of equal length are adjacent for the kernel.

    `records` keeps the record number of each example, so the original order can be restored.
    """
    return _batch(_sort_by_length(Examples.of(examples)))


def micro_batches(examples: Sequence[Example], tokens: int, *, together: bool = False) -> list[Batch]:
    """Split examples into batches of at most `tokens` tokens each, sources included; 0 for one batch.

    A sequence longer than `tokens` gets its own batch. With `together` the sequences of a record are never split.

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
        # A unit is never split: a record (together) or a sequence. `sizes` are its tokens, `counts` its sequences.
        columns, sizes, counts = _by_record(columns)
    else:
        columns = _sort_by_length(columns)
        sizes, counts = columns.sizes, np.ones_like(columns.lengths)
    cuts = _cuts(sizes.tolist(), tokens) if tokens else [(0, len(sizes))]
    # ends[u] is the index of the first sequence of unit u.
    ends = np.append(0, np.cumsum(counts)).tolist()
    parts = (columns[ends[first] : ends[last]] for first, last in cuts)
    return [replace(_batch(_sort_by_length(part)), together=together) for part in parts]


def _cuts(lengths: Sequence[int], tokens: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive runs [first, last) of lengths with a sum of at most `tokens`, each as long as possible."""
    first = size = 0
    for last, length in enumerate(lengths):
        # `last > first`: every run has at least one item, even one that is larger than `tokens`.
        if last > first and size + length > tokens:
            yield first, last
            first, size = last, 0
        size += length
    yield first, len(lengths)


def _by_record(examples: Examples) -> tuple[Examples, Places, Places]:
    """Return the examples grouped by record, largest records first, and the tokens and sequences of each record."""
    _, numbers, counts = np.unique(examples.records, return_inverse=True, return_counts=True)
    # bincount with weights returns float64; the sums are whole numbers.
    sizes = np.bincount(numbers, examples.sizes).astype(np.int64)
    order = np.argsort(-sizes, kind="stable")
    # The inverse permutation: ranks[r] is the position of record r among the sorted records.
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return examples.take(np.argsort(ranks[numbers], kind="stable")), sizes[order], counts[order]


def _sort_by_length(examples: Examples) -> Examples:
    """Sort examples by length, longest first (by the source's length first, if any). The sort is stable."""
    if examples.source is not None:  # an encoder, too, meets runs of equal lengths
        # The last key of lexsort is the primary one.
        return examples.take(np.lexsort((-examples.lengths, -examples.source.lengths)))
    # Sorted already, as after the sort of all micro-batches: save the copy of all columns.
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
    """Return 0, 1, 2, ... for each sequence (sum of `lengths`,)."""
    return ranges(np.zeros_like(lengths), lengths)


def _target(targets: Targets) -> BatchTarget:
    """Convert targets to tensors: classes to int64 and numbers to float32, the types that the losses expect."""
    whole = np.issubdtype(targets.labels.dtype, np.integer)
    # Labels of whole sequences: each label's row is the index of its sequence.
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


def _send_target(target: BatchTarget, device: torch.device) -> BatchTarget:
    weights = None if target.weights is None else send(target.weights, device)
    return replace(target, labels=send(target.labels, device), index=send(target.index, device), weights=weights)
