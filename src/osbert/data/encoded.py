"""The sequences of a task's records: all made before training, or each when a step needs it."""

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

    def take(self, places: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given."""
        ...


class EncodedAhead:
    """Sequences that are there already: `groups` has those of each record."""

    def __init__(self, groups: Iterable[Sequence[Example]]) -> None:
        """Keep them as columns."""
        kept = list(groups)
        self.counts = np.array([len(group) for group in kept], np.int64)
        self.examples = Examples.of([example for group in kept for example in group])

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.counts)

    def take(self, places: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given."""
        return self.examples.take(ranges(begins(self.counts)[places], self.counts[places]))


class EncodedWithTargets:
    """Sequences of others, to which `label` adds targets."""

    def __init__(self, encoded: EncodedRecords, label: Callable[[Examples], Examples]) -> None:
        """Label those of `encoded` at each access."""
        self.encoded = encoded
        self.label = label

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.encoded)

    def take(self, places: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given, with the further targets."""
        return self.label(self.encoded.take(places))


class OnDemand(Generic[Item]):
    """Sequences that are made at each access, so that training begins at once and memory stays free."""

    def __init__(self, records: Sequence[Item], encode: Callable[[Item], Sequence[Example]]) -> None:
        """Make them of `records` by `encode`."""
        self.records = records
        self.encode = encode

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.records)

    def take(self, places: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given."""
        return Examples.of([example for place in places.tolist() for example in self.encode(self.records[place])])
