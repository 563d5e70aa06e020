"""The geometry of the states: how alike random tokens are in each layer, and how alike the layers are.

One token of each text is sampled, as those of a text are not independent. Anisotropy is the mean cosine of two
such tokens (Ethayarajh 2019, section 3.3). Layers are compared by linear CKA (Kornblith et al. 2019) with the unbiased
estimator of HSIC (Song et al. 2007), which is about 0 for independent states however few tokens there are; the usual
one is not. Both also after each number of the states was divided by its deviation, since a few large numbers can decide
alone (Timkey and van Schijndel 2021); CKA then only. Intervals are jackknives over ten groups of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from osbert.analysis.figures import DEVIATIONS, Figure, Floats, grid, named
from osbert.analysis.kinds.contract import Analysis, TextPass
from osbert.models.contract import Sizes
from osbert.reports.explained import explained
from osbert.reports.heat import heat_map
from osbert.reports.page import Section
from osbert.reports.plot import Series, line_plot

TOKENS = 1024
"""Most tokens that are kept: their states are all that this analysis holds."""
LEAST = 20
"""Fewer tokens give no figure."""
GROUPS = 10


def unbiased_hsic(one: Floats, two: Floats) -> float:
    """Return the unbiased HSIC of two Gram matrices (n, n) whose diagonals are 0; n is 4 at least."""
    n = len(one)
    sums = one.sum(0), two.sum(0)
    inner = float((one * two).sum())
    product = float(sums[0].sum() * sums[1].sum()) / ((n - 1) * (n - 2))
    return (inner + product - 2 * float(sums[0] @ sums[1]) / (n - 2)) / (n * (n - 3))


def gram(states: Floats) -> Floats:
    """Return the products (n, n) of states (n, D) with each other, and 0 for each with itself."""
    found = states @ states.T
    np.fill_diagonal(found, 0)
    return found


def cka(one: Floats, two: Floats) -> float:
    """Return the unbiased linear CKA of states (n, D) and (n, D'): 1 for states that differ by a rotation and a scale.

    About 0 for independent ones, and below 0 by chance. NaN where one of them does not vary.
    """
    return _cka(gram(one), gram(two))


def _cka(one: Floats, two: Floats) -> float:
    own = unbiased_hsic(one, one), unbiased_hsic(two, two)
    return unbiased_hsic(one, two) / (own[0] * own[1]) ** 0.5 if min(own) > 0 else float("nan")


def mean_cosine(states: Floats) -> float:
    """Return the mean cosine of two different states out of (n, D)."""
    unit = states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-12)
    n = len(unit)
    return float((np.square(unit.sum(0)).sum() - np.square(unit).sum()) / (n * (n - 1)))


def jackknife(figure: Callable[[np.ndarray], float], n: int) -> tuple[float, tuple[float, float] | None]:
    """Return a figure of all of n items, and its 95% interval from leaving out each of GROUPS groups of them.

    `figure`: of the numbers of some items.
    """
    whole = figure(np.arange(n))
    groups = np.arange(n) % GROUPS
    left = np.array([figure(np.flatnonzero(groups != group)) for group in range(GROUPS)])
    if not np.isfinite(left).all():
        return whole, None
    error = float(np.sqrt((GROUPS - 1) / GROUPS * np.square(left - left.mean()).sum()))
    return whole, (whole - DEVIATIONS * error, whole + DEVIATIONS * error)


class Geometry(Analysis):
    """The states of one token of each text, in all layers."""

    needs_attention = False
    place = 50

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Begin with no token."""
        super().__init__(sizes, seed)
        self.states: list[Floats] = []  # (L + 1, D) each

    def add(self, text: TextPass) -> None:
        """Keep a token that is no special piece, if there is room."""
        places = np.flatnonzero(~(text.marks.first | text.marks.separator))
        if len(self.states) == TOKENS or not len(places):
            return
        drawn = int(np.random.default_rng([self.seed, text.number]).choice(places))
        self.states.append(np.array([state[drawn].float().cpu().numpy() for state in text.states]))

    def figures(self) -> list[Figure]:
        """Return the mean cosine of each layer, and the CKA of each two layers, as they are and standardised."""
        n = len(self.states)
        if n < LEAST:
            return []
        states = np.array(self.states, np.float64).transpose(1, 0, 2)  # (L + 1, n, D)
        deviations = states.std(axis=1, keepdims=True)
        found = []
        for layer, rows in enumerate(states):

            def cosine(index: np.ndarray, rows: Floats = rows) -> float:
                return mean_cosine(rows[index])

            value, interval = jackknife(cosine, n)
            found.append(self._figure("mean_cosine", {"layer": layer}, value, interval))
        for name, given in (("cka", states), ("cka_standardised", states / np.where(deviations > 0, deviations, 1))):
            found += self._alike(name, [gram(rows - rows.mean(0)) for rows in given])
        return found

    def _alike(self, name: str, grams: Sequence[Floats]) -> list[Figure]:
        found = []
        for one in range(len(grams)):
            for two in range(one + 1):

                def alike(index: np.ndarray, pair: tuple[Floats, Floats] = (grams[one], grams[two])) -> float:
                    return _cka(*(matrix[np.ix_(index, index)] for matrix in pair))

                value, interval = (1.0, (1.0, 1.0)) if one == two else jackknife(alike, len(self.states))
                if np.isfinite(value):
                    found.append(self._figure(name, {"layer": one, "other": two}, value, interval))
        return found

    def _figure(
        self, name: str, where: dict[str, int | str], value: float, interval: tuple[float, float] | None
    ) -> Figure:
        return Figure(
            name=name, where=where, value=value, n=len(self.states), unit="tokens", interval=interval,
            baselines={"independent": 0.0}, data=self.reads, seed=self.seed,
        )  # fmt: skip

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the mean cosine by layer, and maps of the layers' likeness."""
        cosines = named(figures, "mean_cosine")
        series = [Series(name="mean cosine", points=[(float(one.where["layer"]), one.value) for one in cosines])]
        first, last = cosines[0], cosines[-1]
        highest = max(cosines, key=lambda one: one.value)
        curve = explained(
            line_plot(series, title="Mean cosine of two random tokens by layer", across="layer (0: embeddings)"),
            plain=f"Two tokens of different texts have a cosine of {first.value:.2f} as they enter and "
            f"{last.value:.2f} in the last layer; highest is layer {highest.where['layer']} with {highest.value:.2f}.",
            caution=f"Cosines of such states mean little by themselves: compare them with this curve, not with 0. "
            f"n is {first.n:,} tokens, one a text.",
        )
        maps = [
            _map(figures, name, title)
            for name, title in (
                ("cka", "Likeness of the layers (linear CKA)"),
                ("cka_standardised", "The same, each number of the states divided by its deviation"),
            )
            if len(cosines) > 1
        ]
        return Section(heading="The geometry of the states", parts=[curve, *maps])


def _map(figures: Sequence[Figure], name: str, title: str) -> str:
    found = named(figures, name)
    values = grid(figures, name, "layer", "other")
    values = np.where(np.isnan(values), values.T, values)
    notes = {}
    for one in found:
        layers = int(one.where["layer"]), int(one.where["other"])
        ends = "" if one.interval is None else f", 95% interval {one.interval[0]:.3f} to {one.interval[1]:.3f}"
        said = f"layers {layers[0]} and {layers[1]}: {one.value:.3f}{ends}"
        notes[layers], notes[layers[::-1]] = said, said
    steps = [(float(one), layer) for layer, one in enumerate(values.diagonal(-1), 1) if np.isfinite(one)]
    plain = "1 is the same up to a rotation, 0 unrelated; layers whose states do not vary have none."
    if steps:
        least, layer = min(steps)
        plain = f"The states change most from layer {layer - 1} to layer {layer}: CKA {least:.2f}. {plain}"
    return explained(
        heat_map(values, notes, title=title, ends=(0, 1), columns="layer"),
        plain=plain,
        caution="CKA compares the large directions of the states; what a task reads can lie in small ones. With "
        f"{found[0].n:,} tokens a difference of a few hundredths may be none.",
    )
