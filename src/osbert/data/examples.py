"""Examples: many examples as concatenated columns, so that numpy processes all of them at once.

B examples with N tokens together. An Example is one of them; a Batch is these columns as tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example, Integers, Places, Target, begins, ranges

COLUMNS = ("ids", "segments", "words", "special", "order", "positions", "unseen", "sentences", "head_words")
"""The columns with one value per token."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The labels of one objective for B examples: M labels, those of one example adjacent.

    `counts` (B,): number of labels of each example. `labels` (M,): integers for classes, floats for numbers. `index`
    (M,): the labelled ones among the N tokens, or None if labels belong to whole sequences. `weights` (M,): weights in
    the mean, None for 1 each.
    """

    labels: NDArray[np.generic]
    counts: Places
    index: Places | None = None
    weights: NDArray[np.floating] | None = None

    def take(self, indices: Places, moved: Places) -> Targets:
        """Return the labels of the examples `indices` (K,), whose tokens shift by `moved` (K,)."""
        counts = self.counts[indices]
        return self._pick(ranges(begins(self.counts)[indices], counts), counts, np.repeat(moved, counts))

    def cut(self, rows: slice, start: int) -> Targets:
        """Return the labels of consecutive examples whose first token has the index `start`; views, not copies."""
        counts = self.counts[rows]
        first = int(self.counts[: rows.start].sum())
        return self._pick(slice(first, first + int(counts.sum())), counts, -start)

    def _pick(self, labels: slice | Places, counts: Places, moved: int | Places) -> Targets:
        return Targets(
            labels=self.labels[labels],
            counts=counts,
            index=None if self.index is None else self.index[labels] + moved,
            weights=None if self.weights is None else self.weights[labels],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples(Sequence[Example]):
    """B examples, N tokens: the columns (N,) of Example, `ids` to `head_words`, end to end.

    `lengths`, `records` and `truncated` (B,): one number per example. `source`: the B sources of the examples, or None;
    either all examples have a source or none has.
    """

    ids: Integers
    segments: Integers
    words: Booleans
    special: Booleans
    lengths: Places
    records: Places
    truncated: Places
    order: Integers | None = None
    positions: Integers | None = None
    unseen: Booleans | None = None
    sentences: Booleans | None = None
    head_words: Booleans | None = None
    source: Examples | None = None
    targets: Mapping[str, Targets] = field(default_factory=dict)

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Examples:
        """Concatenate examples to columns. An Examples is returned unchanged."""
        if isinstance(examples, Examples):
            return examples
        return cls.concatenate([cls._alone(example) for example in examples])

    @classmethod
    def concatenate(cls, parts: Sequence[Examples]) -> Examples:
        """Concatenate several parts, in their order."""
        if len(parts) < 2:
            return parts[0] if parts else _NONE
        names = dict.fromkeys([name for part in parts for name in part.targets])
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            values = [getattr(part, name) for part in parts]
            if len(missing := [index for index, value in enumerate(values) if value is None]) < len(values):
                for index in missing:
                    values[index] = _ABSENT[name](parts[index])
                columns[name] = np.concatenate(values)
        sources = [part.source for part in parts if part.source is not None]
        if sources and len(sources) < len(parts):
            raise ValueError("some examples have a source and others do not, so they cannot form one batch")
        return cls(
            **columns,
            lengths=np.concatenate([part.lengths for part in parts]),
            records=np.concatenate([part.records for part in parts]),
            truncated=np.concatenate([part.truncated for part in parts]),
            source=cls.concatenate(sources) if sources else None,
            targets={name: _join_targets(name, parts) for name in names},
        )

    @classmethod
    def _alone(cls, example: Example) -> Examples:
        return cls(
            **{name: getattr(example, name) for name in COLUMNS},
            lengths=np.array([len(example)]),
            records=np.array([example.record]),
            truncated=np.array([example.truncated]),
            source=None if example.source is None else cls._alone(example.source),
            targets={
                name: Targets(
                    labels=target.labels,
                    counts=np.array([len(target.labels)]),
                    index=None if target.index is None else target.index.astype(np.int64),
                    weights=target.weights,
                )
                for name, target in example.targets.items()
            },
        )

    @cached_property
    def starts(self) -> Places:
        """Index of the first token of each example (B,)."""
        return begins(self.lengths)

    @property
    def sizes(self) -> Places:
        """Return the tokens of each example (B,), source included."""
        return self.lengths if self.source is None else self.lengths + self.source.lengths

    def __len__(self) -> int:
        """Return B, the number of examples."""
        return len(self.lengths)

    @overload
    def __getitem__(self, number: int) -> Example: ...
    @overload
    def __getitem__(self, number: slice) -> Examples: ...
    def __getitem__(self, number: int | slice) -> Example | Examples:
        """Return one Example, or a slice as Examples."""
        if isinstance(number, slice):
            return self._run(*number.indices(len(self)))
        # range resolves negative indices and raises IndexError, which ends iteration over a Sequence.
        index = range(len(self))[number]
        start = int(self.starts[index])
        tokens = slice(start, start + int(self.lengths[index]))
        targets = {}
        for name, target in self.targets.items():
            if target.counts[index]:
                part = target.cut(slice(index, index + 1), start)
                targets[name] = Target(labels=part.labels, index=part.index, weights=part.weights)
        return Example(
            **_columns(self, tokens),
            targets=targets,
            record=int(self.records[index]),
            truncated=int(self.truncated[index]),
            source=None if self.source is None else self.source[index],
        )

    def _run(self, first: int, last: int, step: int) -> Examples:
        """Return a slice. Its columns are views, not copies, if step is 1."""
        if (first, last, step) == (0, len(self), 1):  # a step that is one batch, as most are
            return self
        if step != 1:
            return self.take(np.arange(first, last, step))
        # The appended N is the start of an example after the last one; max() makes an empty slice empty.
        bounds = np.append(self.starts, len(self.ids))[[first, max(first, last)]].tolist()
        tokens, rows = slice(*bounds), slice(first, last)
        return Examples(
            **_columns(self, tokens),
            lengths=self.lengths[rows],
            records=self.records[rows],
            truncated=self.truncated[rows],
            source=None if self.source is None else self.source[rows],
            targets={name: target.cut(rows, bounds[0]) for name, target in self.targets.items()},
        )

    def take(self, indices: Places) -> Examples:
        """Return the examples with the indices `indices` (K,), in that order."""
        lengths = self.lengths[indices]
        tokens = ranges(self.starts[indices], lengths)
        # How far each example's tokens move, to correct the token indices of labels.
        moved = begins(lengths) - self.starts[indices]
        return Examples(
            **_columns(self, tokens),
            lengths=lengths,
            records=self.records[indices],
            truncated=self.truncated[indices],
            source=None if self.source is None else self.source.take(indices),
            targets={name: target.take(indices, moved) for name, target in self.targets.items()},
        )

    def with_target(self, *, ids: Integers, name: str, targets: Targets) -> Examples:
        """Return the examples with other `ids` (N,) and the targets of one more objective."""
        return replace(self, ids=ids, targets={**self.targets, name: targets})


_NONE = Examples(
    ids=np.empty(0, np.int64),
    segments=np.empty(0, np.int8),
    words=np.empty(0, np.bool_),
    special=np.empty(0, np.bool_),
    lengths=np.empty(0, np.int64),
    records=np.empty(0, np.int64),
    truncated=np.empty(0, np.int64),
)
_ABSENT: dict[str, Callable[[Examples], NDArray[Any]]] = {
    "order": lambda part: np.zeros(len(part.ids), np.int64),
    "positions": lambda part: ranges(np.zeros_like(part.lengths), part.lengths),
    "unseen": lambda part: np.zeros(len(part.ids), np.bool_),
    "sentences": lambda part: np.zeros(len(part.ids), np.bool_),
    "head_words": lambda part: np.zeros(len(part.ids), np.bool_),
}
"""The values that an absent column (None) stands for."""


def _columns(owner: Example | Examples, tokens: slice | Places) -> dict[str, Any]:
    """Return the columns of some tokens, by name; None for absent columns."""
    return {name: None if (column := getattr(owner, name)) is None else column[tokens] for name in COLUMNS}


def _join_targets(name: str, parts: Sequence[Examples]) -> Targets:
    """Concatenate the targets `name`; parts without it get counts of 0."""
    present: list[Targets] = []
    counts, indices, start = [], [], 0  # `start`: the tokens before a part, the offset of its label indices
    for part in parts:
        targets = part.targets.get(name)
        counts.append(np.zeros(len(part), np.int64) if targets is None else targets.counts)
        if targets is not None:
            present.append(targets)
            if targets.index is not None:
                indices.append(targets.index + start)
        start += len(part.ids)
    if indices and len(indices) < len(present):
        raise ValueError(f"the target {name} has a value per token in one example and a value per sequence in another")
    weights = [np.ones(len(t.labels), np.float32) if t.weights is None else t.weights for t in present]
    return Targets(
        labels=np.concatenate([targets.labels for targets in present]),
        counts=np.concatenate(counts),
        index=np.concatenate(indices) if indices else None,
        weights=np.concatenate(weights) if any(t.weights is not None for t in present) else None,
    )
