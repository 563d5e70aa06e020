"""Figures: measured numbers, each with what it is a mean over, its interval and what it is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from osbert.evaluation.compare import CONFIDENCE

Floats = NDArray[np.float64]
DEVIATIONS = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Standard errors from a mean to the end of its interval."""
DIGITS = 6
"""Significant digits that are kept: the order in which threads add changes later ones."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured number.

    `where`: of what it is, such as {"layer": 3, "head": 7}; layers and heads count from 1, and layer 0 is the
    embedding output. `n`: over how many of `unit` it was measured. `interval`: of 95%, None where there is none.
    `baselines`: what it is compared with, by name. `data`: the part of the data, `seed`: of the sampling.
    """

    name: str
    value: float
    n: int
    unit: str
    data: str
    seed: int
    where: Mapping[str, int | str] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return it as JSON has it, its numbers rounded."""
        return {
            "name": self.name,
            **({"where": dict(self.where)} if self.where else {}),
            "value": rounded(self.value),
            "n": self.n,
            "unit": self.unit,
            "interval": None if self.interval is None else [rounded(end) for end in self.interval],
            "baselines": {name: rounded(value) for name, value in self.baselines.items()},
            "data": self.data,
            "seed": self.seed,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Figure:
        """Return the figure that `record` wrote."""
        interval = record["interval"]
        return cls(**{**record, "interval": None if interval is None else (interval[0], interval[1])})


def rounded(value: float) -> float:
    """Return a number with DIGITS significant digits.

    >>> rounded(0.123456789), rounded(12345678.9)
    (0.123457, 12345700.0)
    """
    return float(f"{value:.{DIGITS}g}")


class RunningMeans:
    """Means of arrays of one shape, added one after the other; NaN where one of them has no value."""

    def __init__(self) -> None:
        """Begin without any."""
        self.count: Any = 0
        self.total: Any = 0.0
        self.squares: Any = 0.0

    def add(self, values: ArrayLike) -> None:
        """Add an array."""
        given = np.asarray(values, np.float64)
        there = np.isfinite(given)
        given = np.where(there, given, 0.0)
        self.count = self.count + there
        self.total = self.total + given
        self.squares = self.squares + given**2

    @property
    def n(self) -> NDArray[np.int64]:
        """Return how many values there are at each place."""
        return np.asarray(self.count, np.int64)

    @property
    def mean(self) -> Floats:
        """Return the mean at each place, NaN where there is no value."""
        with np.errstate(invalid="ignore"):
            return np.where(self.n > 0, self.total / np.maximum(self.n, 1), np.nan)

    @property
    def margin(self) -> Floats:
        """Return half the width of each mean's interval, by the normal distribution; NaN for fewer than two values."""
        n = self.n
        variance = (self.squares - n * np.nan_to_num(self.mean) ** 2) / np.maximum(n - 1, 1)
        return np.where(n > 1, DEVIATIONS * np.sqrt(np.maximum(variance, 0) / np.maximum(n, 1)), np.nan)

    def interval(self, place: Any) -> tuple[float, float] | None:
        """Return the interval of the mean at a place, None for fewer than two values."""
        mean, margin = float(self.mean[place]), float(self.margin[place])
        return None if np.isnan(margin) else (mean - margin, mean + margin)


def named(figures: Iterable[Figure], name: str) -> list[Figure]:
    """Return the figures of a name."""
    return [figure for figure in figures if figure.name == name]


def grid(figures: Iterable[Figure], name: str, rows: str, columns: str) -> Floats:
    """Return the values of a name as an array, by two of the numbers in their `where`; NaN where there is none."""
    found = named(figures, name)
    if not found:
        return np.empty((0, 0))
    lows = {key: min(int(one.where[key]) for one in found) for key in (rows, columns)}
    shape = [max(int(one.where[key]) for one in found) - lows[key] + 1 for key in (rows, columns)]
    values = np.full(shape, np.nan)
    for one in found:
        values[int(one.where[rows]) - lows[rows], int(one.where[columns]) - lows[columns]] = one.value
    return values


def places(shape: tuple[int, ...], *names: str) -> Iterator[tuple[tuple[int, ...], dict[str, int | str]]]:
    """Yield each index of an array with its `where`, which counts from 1.

    >>> list(places((1, 2), "layer", "head"))
    [((0, 0), {'layer': 1, 'head': 1}), ((0, 1), {'layer': 1, 'head': 2})]
    """
    for index in np.ndindex(*shape):
        yield index, {name: number + 1 for name, number in zip(names, index, strict=True)}
