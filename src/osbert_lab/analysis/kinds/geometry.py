"""The geometry of the states: how similar random tokens are in each layer, and how similar the layers are.

One token of each text is sampled, because tokens of one text are not independent. Anisotropy is the mean cosine of two
such tokens (Ethayarajh 2019, section 3.3). Layers are compared by linear CKA (likeness.py), also after each feature is
divided by its deviation, since a few large features can dominate (Timkey and van Schijndel 2021).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from osbert.models.contract import Sizes
from osbert.reports.page import Section
from osbert.reports.plot import Series, explain_picture, line_plot
from osbert_lab.analysis.figures import Figure, Floats, grid, select_figures
from osbert_lab.analysis.kinds.contract import Analysis, TextPass
from osbert_lab.analysis.likeness import LEAST, interval_without, jackknife, likeness, mean_cosine, standardise
from osbert_lab.analysis.plots import heat_map

TOKENS = 1024
"""Most sampled tokens; their states are the only memory that grows with the sample."""


class Geometry(Analysis):
    """The states of one token of each text, in all layers."""

    needs_attention = False
    least = f"{LEAST} texts"
    position = 50

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Start with no token."""
        super().__init__(sizes, seed)
        self.states: list[Floats] = []  # (L + 1, D) each

    def add(self, text: TextPass) -> None:
        """Keep the states of one random token that is no special piece, up to TOKENS texts."""
        token_indices = np.flatnonzero(~(text.marks.first | text.marks.separator))
        if len(self.states) == TOKENS or not len(token_indices):
            return
        # Seeded by the text, so that the batches do not affect the choice.
        drawn = int(np.random.default_rng([self.seed, text.number]).choice(token_indices))
        self.states.append(np.array([state[drawn].float().cpu().numpy() for state in text.states]))

    def figures(self) -> list[Figure]:
        """Return the mean cosine of each layer, and the CKA of each pair of layers, raw and standardised."""
        n = len(self.states)
        if n < LEAST:
            return []
        states = np.array(self.states, np.float64).transpose(1, 0, 2)  # (L + 1, n, D)
        layer_figures = []
        for layer, rows in enumerate(states):

            def cosine(index: np.ndarray, rows: Floats = rows) -> float:
                return mean_cosine(rows[index])

            value, interval = jackknife(cosine, n)
            layer_figures.append(self._figure("mean_cosine", {"layer": layer}, value, interval))
        for name, given in (("cka", states), ("cka_standardised", standardise(states))):
            layer_figures += self._alike(name, likeness([*given]))
        return layer_figures

    def _alike(self, name: str, alike: Floats) -> list[Figure]:
        figures = []
        for layer, other in zip(*np.tril_indices(alike.shape[1]), strict=True):
            value = float(alike[0, layer, other]) if layer != other else 1.0  # also of a layer that does not vary
            interval = interval_without(value, alike[1:, layer, other]) if layer != other else (1.0, 1.0)
            if np.isfinite(value):
                figures.append(self._figure(name, {"layer": int(layer), "other": int(other)}, value, interval))
        return figures

    def _figure(
        self, name: str, where: dict[str, int | str], value: float, interval: tuple[float, float] | None
    ) -> Figure:
        return Figure(
            name=name, where=where, value=value, n=len(self.states), unit="tokens", interval=interval,
            baselines={"independent": 0.0}, data=self.reads, seed=self.seed,
        )  # fmt: skip

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the mean cosine by layer, and maps of the similarity of layers."""
        cosines = select_figures(figures, "mean_cosine")
        series = [
            Series(name="mean cosine", points=[(float(figure.where["layer"]), figure.value) for figure in cosines])
        ]
        first, last = cosines[0], cosines[-1]
        highest = max(cosines, key=lambda figure: figure.value)
        curve = explain_picture(
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
    similarities = select_figures(figures, name)
    values = grid(figures, name, "layer", "other")
    # Figures cover the lower triangle only; the map is symmetric.
    values = np.where(np.isnan(values), values.T, values)
    notes = {}
    for figure in similarities:
        layers = int(figure.where["layer"]), int(figure.where["other"])
        ends = "" if figure.interval is None else f", 95% interval {figure.interval[0]:.3f} to {figure.interval[1]:.3f}"
        note = f"layers {layers[0]} and {layers[1]}: {figure.value:.3f}{ends}"
        notes[layers], notes[layers[::-1]] = note, note
    steps = [(float(value), layer) for layer, value in enumerate(values.diagonal(-1), 1) if np.isfinite(value)]
    plain = "1 is the same up to a rotation, 0 unrelated; layers whose states do not vary have none."
    if steps:
        least, layer = min(steps)
        plain = f"The states change most from layer {layer - 1} to layer {layer}: CKA {least:.2f}. {plain}"
    return explain_picture(
        heat_map(values, notes, title=title, ends=(0, 1), columns="layer"),
        plain=plain,
        caution="CKA compares the large directions of the states; what a task reads can lie in small ones. With "
        f"{similarities[0].n:,} tokens a difference of a few hundredths may be none.",
    )
