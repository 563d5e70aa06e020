"""Batch: the tensors of one micro-step. A flat run of tokens without padding.

N = all tokens of the batch, B = its sequences, M = the labels of one target. Only the attention kernel knows how
sequences lie in memory; no linear layer, norm or head ever sees a padding token.

For a retry when memory runs out, a batch is cut into `halves`. Batches are written as .npz files to be inspected, or to
be evaluated on again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osbert.data.example import Example, Integers, Places, begins, ranges, rows
from osbert.data.examples import Examples, Targets
from osbert.errors import UserError
from osbert.files import replace_file
from osbert.guarded import require_regular


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


TOKEN_COLUMNS = ("ids", "positions", "segments", "order", "unseen", "head_words")
"""The columns of a batch with one value per token."""
FILE_COLUMNS = (*TOKEN_COLUMNS, "starts", "records")
FILE_LABELS = ("labels", "index", "weights")
FILE_SOURCE = "source"
"""Names of arrays in .npz files: columns, fields of a target, and the prefix of a batch's source."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A flat run of tokens: `ids`, `positions`, `segments` (N,) int64; `order` (N,) int64 or None for 0 everywhere.

    `unseen` (N,): True on tokens that no token attends to, None for False everywhere. `head_words` (N,): True
    at the tokens that the head reads, None if it does not ask (see `Example`).

    `lengths`: tokens in each of the B sequences, plain integers that never leave the CPU. `starts` (B,): index of each
    sequence's first token. `records` (B,): the record of each sequence. `together`: whether the sequences of a record
    must stay in one batch because the loss compares them; `whole`: whether all sequences must. `pass_tokens`: most
    tokens of one pass through the model (`passes`) if only the outputs of a whole batch are compared, 0 for one pass.

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
    head_words: Tensor | None = None
    source: Batch | None = None
    targets: Mapping[str, BatchTarget] = field(default_factory=dict)
    together: bool = False
    whole: bool = False
    pass_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Return N, the number of tokens without those of the source."""
        return sum(self.lengths)

    @property
    def size(self) -> int:
        """Return the number of tokens in a forward pass: N plus the tokens of the source."""
        return self.tokens + (0 if self.source is None else self.source.tokens)

    @property
    def pass_size(self) -> int:
        """Return the number of tokens in the largest pass, about."""
        return min(self.size, max(self.pass_tokens, *self.lengths)) if self.pass_tokens else self.size

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

        def move(owner: Batch | BatchTarget, names: Sequence[str]) -> dict[str, Any]:
            columns = {name: getattr(owner, name) for name in names}
            return {name: send(column, device) for name, column in columns.items() if column is not None}

        targets = {name: replace(target, **move(target, FILE_LABELS)) for name, target in self.targets.items()}
        source = None if self.source is None else self.source.to(device)
        batch = replace(self, targets=targets, source=source, **move(self, FILE_COLUMNS))
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
        head_words=None if examples.head_words is None else torch.from_numpy(examples.head_words),
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


def halves(batch: Batch) -> list[Batch]:
    """Split a batch between sequences, or between records if `batch.together`, into two of similar size.

    A batch of one sequence or record, or with `batch.whole`, is returned alone and unchanged. A whole batch that can be
    read in passes gets passes of half the size, if one has several sequences.
    """
    if batch.whole:
        size = batch.pass_size
        return [
            replace(batch, pass_tokens=max(1, size // 2)) if batch.pass_tokens and size > max(batch.lengths) else batch
        ]
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


def passes(batch: Batch) -> list[Batch]:
    """Return the parts of a batch that pass through the model one after the other, in order, without targets.

    Each has at most `batch.pass_tokens` tokens, or one sequence; without passes the batch itself is the only one.
    """
    cuts = [*_cuts(batch.lengths, batch.pass_tokens)] if batch.pass_tokens else []
    return [_run(batch, first, last) for first, last in cuts] if len(cuts) > 1 else [batch]


def _run(batch: Batch, first: int, last: int) -> Batch:
    """Return consecutive sequences as a batch, on the same device and without targets."""
    start = sum(batch.lengths[:first])
    tokens = slice(start, start + sum(batch.lengths[first:last]))
    columns: dict[str, Any] = {name: getattr(batch, name) for name in TOKEN_COLUMNS}
    columns = {name: None if column is None else column[tokens] for name, column in columns.items()}
    return replace(
        batch,
        **columns,
        lengths=batch.lengths[first:last],
        starts=batch.starts[first:last] - start,
        records=batch.records[first:last],
        source=None if batch.source is None else _run(batch.source, first, last),
        targets={},
        whole=False,
        pass_tokens=0,
    )


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


def write_batches(path: Path, batches: Sequence[Batch]) -> None:
    """Write batches atomically, as arrays "0.ids", "0.lengths", "0.mlm.labels" and so on; 0 is the first batch."""
    arrays: dict[str, np.ndarray] = {}
    for number, batch in enumerate(batches):
        arrays |= _columns(f"{number}", batch)
        if batch.source is not None:
            arrays |= _columns(f"{number}.{FILE_SOURCE}", batch.source)
        for name, target in batch.targets.items():
            arrays |= _arrays(f"{number}.{name}", target, FILE_LABELS)
            arrays[f"{number}.{name}.per_token"] = np.array(target.per_token)
            arrays[f"{number}.{name}.count"] = np.array(target.count)
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    replace_file(path, write)


def read_batches(path: Path) -> list[Batch]:
    """Read the batches of a file. Raises UserError if it is damaged or not a file of batches."""
    try:
        require_regular(path)
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        # Batches are numbered without gaps, so the number of distinct prefixes is their number.
        count = len({name.partition(".")[0] for name in arrays})
        return [_read_batch(arrays, f"{number}.") for number in range(count)]
    except Exception as error:  # numpy and zipfile raise many kinds, all of which mean the same
        raise UserError(
            f"{path}: this is not a file of batches, or it is damaged ({error}). Remove it.", code="damaged-file"
        ) from error


def _columns(prefix: str, batch: Batch) -> dict[str, np.ndarray]:
    """Return the arrays of a batch without its targets and its source."""
    sizes = {f"{prefix}.lengths": np.array(batch.lengths), f"{prefix}.together": np.array(batch.together)}
    return sizes | _arrays(prefix, batch, FILE_COLUMNS)


def _arrays(prefix: str, owner: object, names: Sequence[str]) -> dict[str, np.ndarray]:
    columns = {name: getattr(owner, name) for name in names}
    return {f"{prefix}.{name}": value.numpy() for name, value in columns.items() if value is not None}


def _read_batch(arrays: dict[str, np.ndarray], prefix: str) -> Batch:
    batch_arrays = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    # What has a dot in its name belongs to a target ("mlm.labels") or to the source ("source.ids").
    names = {name.rpartition(".")[0] for name in batch_arrays if "." in name} - {FILE_SOURCE}
    source = _read_batch(batch_arrays, f"{FILE_SOURCE}.") if f"{FILE_SOURCE}.lengths" in batch_arrays else None

    def tensors(names: Sequence[str], of: str = "") -> dict[str, Any]:
        columns = {name: batch_arrays.get(of + name) for name in names}
        return {name: None if column is None else torch.from_numpy(column) for name, column in columns.items()}

    targets = {
        name: BatchTarget(
            per_token=bool(batch_arrays[f"{name}.per_token"]),
            count=float(batch_arrays[f"{name}.count"]),
            **tensors(FILE_LABELS, f"{name}."),
        )
        for name in sorted(names)
    }
    return Batch(
        lengths=tuple(batch_arrays["lengths"].tolist()),
        together=bool(batch_arrays["together"]),
        targets=targets,
        source=source,
        **tensors(FILE_COLUMNS),
    )
