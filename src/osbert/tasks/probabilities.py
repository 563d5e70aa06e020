"""The probabilities of many labels: an array with the labels' names, of which the likeliest are listed."""

from __future__ import annotations

import heapq
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

import numpy as np
from numpy.typing import NDArray

LABELS, LIKELIEST = 100, 10
"""Most labels that are listed with their probabilities, and how many of more: the likeliest."""


class LabelProbabilities(Mapping[str, float]):
    """The probability of each label by name, over an array (K,): of 10,000 labels 80 kB, a tenth of a dict.

    `index`: of each label in the array, in the array's order. It is not copied: all predictions of a task have one.
    """

    __slots__ = ("array", "index")

    def __init__(self, index: Mapping[str, int], array: NDArray[np.float64]) -> None:
        self.index, self.array = index, array

    def __getitem__(self, label: str) -> float:
        return float(self.array[self.index[label]])

    def __contains__(self, label: object) -> bool:
        return label in self.index

    def __iter__(self) -> Iterator[str]:
        return iter(self.index)

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return repr(dict(self.items()))

    def values(self) -> ValuesView[float]:
        """Return the probabilities."""
        return _Values(self)

    def items(self) -> ItemsView[str, float]:
        """Return (label, probability) of each label."""
        return _Items(self)

    def likeliest(self, count: int) -> list[tuple[str, float]]:
        """Return (label, probability) of the likeliest labels; of equal ones the first."""
        count = min(count, len(self))
        if not count:
            return []
        least = np.partition(self.array, -count)[-count]
        numbers = np.flatnonzero(self.array >= least)
        numbers = numbers[np.argsort(-self.array[numbers], kind="stable")][:count]
        labels = [*self.index]
        return [(labels[number], float(self.array[number])) for number in numbers.tolist()]


class _Values(ValuesView[float]):
    """The values, which are read from the array at once."""

    _mapping: LabelProbabilities

    def __iter__(self) -> Iterator[float]:
        return iter(self._mapping.array.tolist())


class _Items(ItemsView[str, float]):
    """The items, whose values are read from the array at once."""

    _mapping: LabelProbabilities

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return zip(self._mapping.index, self._mapping.array.tolist())


def by_label(index: Mapping[str, int], array: NDArray[np.float64]) -> Mapping[str, float]:
    """Return the probabilities (K,) by label; `index`: of each label in the array, in its order."""
    return dict(zip(index, array.tolist())) if len(index) <= LABELS else LabelProbabilities(index, array)


def as_array(probabilities: Mapping[str, float]) -> NDArray[np.float64]:
    """Return the probabilities (K,) in the order of their labels."""
    if isinstance(probabilities, LabelProbabilities):
        return probabilities.array
    return np.array([*probabilities.values()], np.float64)


def with_array(probabilities: Mapping[str, float], array: NDArray[np.float64]) -> Mapping[str, float]:
    """Return the same labels with other probabilities (K,)."""
    if isinstance(probabilities, LabelProbabilities):
        return LabelProbabilities(probabilities.index, array)
    return dict(zip(probabilities, array.tolist()))


def likeliest(probabilities: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    """Return (label, probability) of the likeliest labels; of equal ones the first."""
    if isinstance(probabilities, LabelProbabilities):
        return probabilities.likeliest(count)
    return heapq.nlargest(count, probabilities.items(), key=lambda item: item[1])


def reply_fields(probabilities: Mapping[str, float], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what a server says of probabilities: all up to LABELS; of more the likeliest, and how many are left out.

    `keep`: labels to list in any case.

    >>> reply_fields({"good": 0.75, "bad": 0.25})
    {'probabilities': {'good': 0.75, 'bad': 0.25}}
    """
    if len(probabilities) <= LABELS:
        return {"probabilities": dict(probabilities)}
    listed = likely_labels(probabilities, keep)
    return {"probabilities": dict(listed), "left_out": len(probabilities) - len(listed)}


def likely_labels(probabilities: Mapping[str, float], keep: tuple[str, ...] = ()) -> list[tuple[str, float]]:
    """Return the labels to list with their probabilities, the likeliest first: of more than LABELS the LIKELIEST.

    `keep`: labels to list in any case.
    """
    count = len(probabilities)
    listed = dict(likeliest(probabilities, count if count <= LABELS else LIKELIEST))
    listed |= {label: probabilities[label] for label in keep}
    return sorted(listed.items(), key=lambda item: -item[1])
