"""Confusion matrices of tasks with classes: how often each label was predicted for each true one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from osbert.tasks.record import UNPAIRED

DENSE = 100
"""Most labels whose counts are reported as a whole matrix."""


class LabelPair(NamedTuple):
    """A true and a predicted label, and the number of items (rows, entities) that have both."""

    true: str
    predicted: str
    items: int


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix:
    """How often each label was predicted for each true one.

    `labels`: the K labels; the last is "", no label, if an item has a label on one side only, as entities and several
    labels can, or if the model wrote a text that is no label. `pairs`: those that occur, the most frequent first.
    """

    reported: ClassVar[tuple[str, ...]] = ("labels", "counts", "pairs")

    labels: tuple[str, ...]
    pairs: tuple[LabelPair, ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], classes: Sequence[str]) -> ConfusionMatrix:
        """Count (true, predicted) pairs of labels; what is none of `classes` counts as "".

        >>> found = ConfusionMatrix.of([("pos", "pos"), ("neg", "pos"), ("neg", "pos")], ("neg", "pos"))
        >>> found.array().tolist(), found.pairs[0]
        ([[0, 2], [0, 1]], LabelPair(true='neg', predicted='pos', items=2))
        """
        known = {*classes}
        tally = Counter(tuple(name if name in known else UNPAIRED for name in pair) for pair in pairs)
        labels = (*classes, UNPAIRED) if any(UNPAIRED in pair for pair in tally) else tuple(classes)
        ranked = sorted(tally.items(), key=lambda item: (-item[1], item[0]))
        return cls(labels=labels, pairs=tuple(LabelPair(true, guess, count) for (true, guess), count in ranked))

    @property
    def counts(self) -> list[list[int]] | None:
        """The whole matrix, as `array` returns it; None for more than 100 labels: `pairs` has what is not 0."""
        return self.array().tolist() if len(self.labels) <= DENSE else None

    def array(self) -> NDArray[np.int64]:
        """Return the counts (K, K): a row for each true label, a column for each predicted one."""
        index = {label: number for number, label in enumerate(self.labels)}
        counts = np.zeros((len(index), len(index)), np.int64)
        for true, predicted, count in self.pairs:
            counts[index[true], index[predicted]] = count
        return counts
