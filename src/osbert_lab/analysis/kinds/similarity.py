"""Which heads are similar: the Jensen-Shannon divergence of their attention, and a map of all heads from it.

Clark et al. 2019, section 6: JS(a, b) = H((a + b) / 2) - (H(a) + H(b)) / 2, in nats, averaged over the tokens of a text
and then over texts, without smoothing. Its square root is a Euclidean distance (Fuglede and Topsoe 2004). So classical
scaling (Torgerson 1952), which needs no seed, gives the map: two axes of one eigendecomposition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from osbert.models.contract import Sizes
from osbert.reports.page import Section
from osbert.reports.plot import explain_picture
from osbert_lab.analysis.figures import Figure, Floats, RunningMeans, select_figures
from osbert_lab.analysis.kinds.contract import Analysis, TextPass
from osbert_lab.analysis.plots import Spot, scatter_plot

TEXTS = 30
"""Number of texts compared; each costs as much as all other analyses on fifty texts."""
LARGEST = 2**22
"""Most attention weights in memory for the comparison of a text; of a longer text the first queries are used."""


def divergences(weights: Tensor) -> Tensor:
    """Return the divergence (H, H) of each pair of heads (H, Q, T), the mean over queries."""
    heads = len(weights)
    entropies = -torch.xlogy(weights, weights).sum(-1)  # (H, Q)
    pair_divergences = weights.new_zeros(heads, heads)
    # One head against all later ones: a tensor (H, H, Q, T) would be too large.
    for head in range(heads - 1):
        mixed = (weights[head + 1 :] + weights[head]) / 2  # (H - head - 1, Q, T)
        apart = -torch.xlogy(mixed, mixed).sum(-1) - (entropies[head + 1 :] + entropies[head]) / 2
        pair_divergences[head, head + 1 :] = apart.mean(-1)
    # Rounding may make the divergence of equal heads slightly negative.
    pair_divergences = pair_divergences.clamp_min(0)
    return pair_divergences + pair_divergences.T


def scale_to_plane(distances: Floats) -> tuple[Floats, float]:
    """Return coordinates (H, 2) for items with these squared distances (H, H), by classical scaling.

    Also the fraction of the variance on the two axes. The largest coordinate of each axis is positive.
    """
    count = len(distances)
    centred = np.eye(count) - 1 / count
    # The doubly centred matrix -J D J / 2 is the Gram matrix of the points.
    values, vectors = np.linalg.eigh(-centred @ distances @ centred / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    axes = vectors[:, :2] * np.sqrt(np.maximum(values[:2], 0))
    if axes.shape[1] < 2:
        axes = np.pad(axes, ((0, 0), (0, 2 - axes.shape[1])))
    # The sign of an eigenvector is arbitrary; fixing it makes the map reproducible.
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), range(2)])
    total = np.maximum(values, 0).sum()
    return axes * np.where(signs == 0, 1, signs), float(np.maximum(values[:2], 0).sum() / total) if total else 1.0


class Similarity(Analysis):
    """The divergences of all heads from each other, over a few texts."""

    least = "two texts"
    position = 2

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Start with no text."""
        super().__init__(sizes, seed)
        self.pairs = RunningMeans()  # (LH, LH)
        self.within = RunningMeans()  # (L,)
        self.between = RunningMeans()
        self.heads = 0

    def add(self, text: TextPass) -> None:
        """Add the divergences of all heads on a text, if it is one of the first TEXTS."""
        if text.number >= TEXTS:
            return
        length = text.attention[0].shape[-1]
        self.heads = len(text.attention[0])
        queries = max(1, min(length, LARGEST // (length * self.heads * len(text.attention))))
        weights = torch.cat([layer[:, :queries] for layer in text.attention])  # (LH, Q, T)
        apart = divergences(weights).cpu().double().numpy()
        self.pairs.add(apart)
        same, others = self._layers(len(apart))
        with np.errstate(invalid="ignore"):
            self.within.add(
                (apart * same).sum(1).reshape(-1, self.heads).sum(1) / (self.heads * (self.heads - 1) or np.nan)
            )
        self.between.add(apart[others].mean() if others.any() else np.nan)

    def _layers(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which pairs of heads (LH, LH) are of the same layer, and which are of two layers."""
        layers = np.arange(count) // self.heads
        same = layers[:, None] == layers
        return same, ~same

    def figures(self) -> list[Figure]:
        """Return the mean divergence within each layer, and the coordinates of each head on the map.

        A single text has no interval, so that it gives no figure.
        """
        n = int(self.pairs.n.max(initial=0))
        if n < 2:
            return []
        common = Figure(name="", value=0, n=n, unit="texts", data=self.reads, seed=self.seed)
        between = float(self.between.mean)
        divergence_figures = [
            replace(
                common,
                name="divergence_within",
                where={"layer": layer + 1},
                value=float(value),
                interval=self.within.interval(layer),
                baselines={"between layers": between} if np.isfinite(between) else {},
            )
            for layer, value in enumerate(self.within.mean)
            if np.isfinite(value)
        ]
        axes, fraction = scale_to_plane(self.pairs.mean)
        divergence_figures.append(replace(common, name="map_shows", value=fraction))
        for number, coordinates in enumerate(axes):
            where: dict[str, int | str] = {"layer": number // self.heads + 1, "head": number % self.heads + 1}
            divergence_figures += [
                replace(common, name=f"map_{axis}", where=where, value=float(value))
                for axis, value in zip(("across", "up"), coordinates, strict=True)
            ]
        return divergence_figures

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the map of all heads."""
        across, up = select_figures(figures, "map_across"), select_figures(figures, "map_up")
        layers = max(int(figure.where["layer"]) for figure in across)
        spots = [
            Spot(
                x=figure.value,
                y=other.value,
                label=f"head {figure.where['layer']}-{figure.where['head']}",
                color=(int(figure.where["layer"]) - 1) * min(6, layers) // layers,
            )
            for figure, other in zip(across, up, strict=True)
        ]
        keys = {spot.color: "" for spot in spots}
        for figure, spot in zip(across, spots, strict=True):
            begun = keys[spot.color].partition("-")[0] or f"{figure.where['layer']}"
            keys[spot.color] = begun if begun == f"{figure.where['layer']}" else f"{begun}-{figure.where['layer']}"
        within = select_figures(figures, "divergence_within")
        plain = f"Two heads are near each other if they look at the same tokens, over {across[0].n:,} texts."
        if within and within[0].baselines:
            mean = sum(figure.value for figure in within) / len(within)
            between = within[0].baselines["between layers"]
            than = "more" if mean < between else "no more"
            plain += (
                f" Heads of one layer are {than} alike than heads of two: a divergence of {mean:.2f} against "
                f"{between:.2f} nats."
            )
        [fraction_figure] = select_figures(figures, "map_shows")
        plot = scatter_plot(
            spots, title="Heads by what they look at", keys=[(f"layer {name}", color) for color, name in keys.items()]
        )
        caution = (
            f"The two axes show {fraction_figure.value:.0%} of the differences, so that near heads may differ; the "
            "axes have no meaning of their own."
        )
        return Section(heading="Which heads are alike", parts=[explain_picture(plot, plain=plain, caution=caution)])
