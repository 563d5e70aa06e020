"""Figures: measured numbers with their sample size, interval and baselines; the interval of a ratio."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from osbert.evaluation.bootstrap import CONFIDENCE, bootstrap, percentiles

Floats = NDArray[np.float64]
DEVIATIONS = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Half the width of a normal interval in standard errors, 1.96."""
DIGITS = 6
"""Significant digits in files. Later digits depend on the order in which threads add."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured number.

    `where`: what it belongs to, such as {"layer": 3, "head": 7}; layers and heads count from 1, layer 0 is the
    embedding output. `n`: the number of items, and `unit`: what they are. `interval`: 95%, None if unknown.
    `baselines`: values to compare it with, by name. `data`: the part of the data that was read. `seed`: that of the
    sampling.
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
        """Return it as a JSON object, its numbers rounded."""
        return {
            "name": self.name,
            **({"where": dict(self.where)} if self.where else {}),
            "value": round_figure(self.value),
            "n": self.n,
            "unit": self.unit,
            "interval": None if self.interval is None else [round_figure(end) for end in self.interval],
            "baselines": {name: round_figure(value) for name, value in self.baselines.items()},
            "data": self.data,
            "seed": self.seed,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Figure:
        """Return the figure of a JSON object that `record` returned."""
        interval = record["interval"]
        return cls(**{**record, "interval": None if interval is None else (interval[0], interval[1])})


def round_figure(value: float) -> float:
    """Return a number with DIGITS significant digits.

    >>> round_figure(0.123456789), round_figure(12345678.9)
    (0.123457, 12345700.0)
    """
    return float(f"{value:.{DIGITS}g}")


class RunningMeans:
    """Elementwise means of arrays of one shape, added one at a time; non-finite elements count as missing."""

    def __init__(self) -> None:
        """Start with no array; the first one determines the shape."""
        self.count: Any = 0
        self.total: Any = 0.0
        self.squares: Any = 0.0

    def add(self, values: ArrayLike) -> None:
        """Add an array (or a number); NaN and infinity are skipped in their element only."""
        given = np.asarray(values, np.float64)
        is_finite = np.isfinite(given)
        given = np.where(is_finite, given, 0.0)
        self.count = self.count + is_finite
        self.total = self.total + given
        self.squares = self.squares + given**2

    @property
    def n(self) -> NDArray[np.int64]:
        """Return the number of values of each element."""
        return np.asarray(self.count, np.int64)

    @property
    def mean(self) -> Floats:
        """Return the mean of each element, NaN if it has no value."""
        with np.errstate(invalid="ignore"):
            return np.where(self.n > 0, self.total / np.maximum(self.n, 1), np.nan)

    @property
    def margin(self) -> Floats:
        """Return half the width of the normal interval of each mean, 1.96 s / sqrt(n); NaN for under two values."""
        n = self.n
        # The unbiased variance from running sums; rounding may make it slightly negative, hence the maximum below.
        variance = (self.squares - n * np.nan_to_num(self.mean) ** 2) / np.maximum(n - 1, 1)
        return np.where(n > 1, DEVIATIONS * np.sqrt(np.maximum(variance, 0) / np.maximum(n, 1)), np.nan)

    def interval(self, index: Any) -> tuple[float, float] | None:
        """Return the interval of the mean of one element, None for fewer than two values."""
        mean, margin = float(self.mean[index]), float(self.margin[index])
        return None if np.isnan(margin) else (mean - margin, mean + margin)


def select_figures(figures: Iterable[Figure], name: str) -> list[Figure]:
    """Return the figures called `name`."""
    return [figure for figure in figures if figure.name == name]


def grid(figures: Iterable[Figure], name: str, rows: str, columns: str) -> Floats:
    """Return the values of a figure as a table by two keys of `where`, from the lowest numbers on; NaN if missing."""
    matches = select_figures(figures, name)
    if not matches:
        return np.empty((0, 0))
    # Some figures count layers from 0 (the embeddings), others from 1.
    lows = {key: min(int(figure.where[key]) for figure in matches) for key in (rows, columns)}
    shape = [max(int(figure.where[key]) for figure in matches) - lows[key] + 1 for key in (rows, columns)]
    values = np.full(shape, np.nan)
    for figure in matches:
        values[int(figure.where[rows]) - lows[rows], int(figure.where[columns]) - lows[columns]] = figure.value
    return values


def label_indices(shape: tuple[int, ...], *names: str) -> Iterator[tuple[tuple[int, ...], dict[str, int | str]]]:
    """Yield each index of an array, from 0, with its `where`, which counts from 1.

    >>> list(label_indices((1, 2), "layer", "head"))
    [((0, 0), {'layer': 1, 'head': 1}), ((0, 1), {'layer': 1, 'head': 2})]
    """
    for index in np.ndindex(*shape):
        yield index, {name: number + 1 for name, number in zip(names, index, strict=True)}


def ratio_interval(
    totals: NDArray[np.float64], counts: NDArray[np.floating] | NDArray[np.integer], *, seed: int = 0
) -> tuple[float, float]:
    """Return the 95% interval of sum(totals) / sum(counts), two columns (n,) whose rows are sampled together.

    For a mean over parts of unequal size that are not independent, such as the words of texts: a row is a text.

    >>> ratio_interval(np.array([2.0, 4.0]), np.array([1, 2]))
    (2.0, 2.0)
    """
    ratios = bootstrap(lambda rows: [totals[rows].sum() / counts[rows].sum()], len(totals), seed=seed)
    return percentiles(ratios[:, 0])
