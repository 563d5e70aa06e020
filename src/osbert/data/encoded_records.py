"""The sequences of a task's records: encoded before training, or when a step needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.ragged import Places, begins, ranges

Item = TypeVar("Item")


class EncodedRecords(Protocol):
    """The sequences of some records, accessible by index."""

    def __len__(self) -> int:
        """Return the number of records."""
        ...

    def take(self, indices: Places) -> Examples:
        """Return the sequences of the records with the indices `indices`, in that order."""
        ...


class EncodedAhead:
    """Sequences that were encoded before training, kept in memory."""

    def __init__(self, groups: Iterable[Sequence[Example]]) -> None:
        """Concatenate `groups`, the sequences of each record, into columns."""
        record_groups = list(groups)
        self.counts = np.array([len(group) for group in record_groups], np.int64)
        self.examples = Examples.of([example for group in record_groups for example in group])

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.counts)

    def take(self, indices: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given."""
        # A record has counts[r] sequences, which are adjacent in `examples`: expand record indices to sequence
        # indices.
        return self.examples.take(ranges(begins(self.counts)[indices], self.counts[indices]))


class EncodedWithTargets:
    """Adds targets to the sequences of other encoded records."""

    def __init__(self, encoded: EncodedRecords, label: Callable[[Examples], Examples]) -> None:
        """Apply `label` to the sequences of `encoded` at each access."""
        self.encoded = encoded
        self.label = label

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.encoded)

    def take(self, indices: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given, with the added targets."""
        return self.label(self.encoded.take(indices))


class OnDemand(Generic[Item]):
    """Sequences that are encoded at each access: training starts at once and needs less memory."""

    def __init__(self, records: Sequence[Item], encode: Callable[[Item], Sequence[Example]]) -> None:
        """Apply `encode` to items of `records` at each access."""
        self.records = records
        self.encode = encode

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.records)

    def take(self, indices: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given."""
        return Examples.of([example for index in indices.tolist() for example in self.encode(self.records[index])])
