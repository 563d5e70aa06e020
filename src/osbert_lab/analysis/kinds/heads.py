"""What each head attends to: neighbours, itself, [CLS], [SEP], punctuation; how far, and how broadly.

Clark et al. 2019, "What Does BERT Look At?", section 3. Each figure of a text is the mean over the queries that have
such a key (the first token has no previous one), then over texts, so that long texts do not count more. The entropy is
exact, in nats. The baseline is the same figure for uniform attention over the tokens that are visible; its entropy is
ln n for a text of n tokens, and less in a layer of local attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from osbert.models.contract import Sizes
from osbert.reports.page import Section, paragraph
from osbert.reports.plot import Series, explain_picture, line_plot
from osbert.terminal import format_count
from osbert_lab.analysis.figures import Figure, Floats, RunningMeans, grid, label_indices, select_figures
from osbert_lab.analysis.kinds.contract import Analysis, TextPass, TokenMarks
from osbert_lab.analysis.plots import heat_map

NAMES = {
    "previous": "the previous token",
    "next": "the next token",
    "itself": "the token itself",
    "first": "[CLS]",
    "separator": "[SEP]",
    "punctuation": "punctuation",
}
"""The figures that are fractions of the attention of a head, with their names in sentences."""
ENTROPIES = ("entropy", "first_entropy")
ALL = (*NAMES, "distance", *ENTROPIES)
UNIFORM = "uniform"
DISTANT = (
    "Heads look {low:.1f} to {high:.1f} tokens away on average; even attention would look {even:.1f} away.",
    "Attention to [CLS] and [SEP] counts as distance, too: a head that rests there looks far without reading anything.",
)
BROAD = (
    "Heads have {low:.2f} to {high:.2f} nats; one that looks at one token has 0, even attention {even:.2f}.",
    "A head with little entropy is sure of where it looks; whether that matters to an answer is another question.",
)
STRONG = 0.5
"""Fraction of attention above which a head is counted as one that looks at something."""


def statistics(weights: Tensor, marks: TokenMarks) -> Tensor:
    """Return the figures (S, H) of attention weights (H, T, T), in the order of ALL; NaN if no query has one.

    The attention to [CLS], [SEP] and punctuation is 0 in a text without them.
    """
    length = weights.shape[-1]
    positions = torch.arange(length, device=weights.device)
    distances = (positions[:, None] - positions).abs().to(weights.dtype)  # (T, T)
    # xlogy is 0 at weight 0.
    entropies = -torch.xlogy(weights, weights).sum(-1)  # (H, T)

    def diagonal(offset: int) -> Tensor:
        # Offset -1 has the weights of query t for key t - 1; it is empty, and its mean NaN, if T is 1.
        return weights.diagonal(offset, -2, -1).mean(-1)

    def keys(which: np.ndarray) -> Tensor:
        index = torch.from_numpy(np.flatnonzero(which)).to(weights.device)
        return weights.index_select(-1, index).sum(-1).mean(-1)

    first = torch.from_numpy(np.flatnonzero(marks.first)).to(weights.device)
    return torch.stack(
        [
            diagonal(-1),
            diagonal(1),
            diagonal(0),
            keys(marks.first),
            keys(marks.separator),
            keys(marks.punctuation),
            (weights * distances).sum(-1).mean(-1),
            entropies.mean(-1),
            entropies.index_select(-1, first).mean(-1),
        ]
    )


def uniform(length: int, *, causal: bool, window: int | None = None) -> Tensor:
    """Return uniform attention (1, T, T) over the visible tokens.

    These are all tokens, or those up to the query (causal), or those within `window` positions.
    """
    even = torch.ones(1, length, length, dtype=torch.float32)
    even = even.tril() if causal else even
    even = even if window is None else even.tril(window).triu(-window)
    return even / even.sum(-1, keepdim=True)


class Heads(Analysis):
    """Means over texts of the figures of each head."""

    position = 1
    least = "two texts"

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Start with no text."""
        super().__init__(sizes, seed)
        self.heads = RunningMeans()  # (L, H, S)
        self.layers = RunningMeans()  # (L, S)
        self.even = RunningMeans()  # (L, S)

    def add(self, text: TextPass) -> None:
        """Add the figures of a text's heads, their mean in each layer, and those of uniform attention."""
        values = np.array([statistics(weights, text.marks).T.cpu().numpy() for weights in text.attention], np.float64)
        self.heads.add(values)
        self.layers.add(values.mean(axis=1))
        length = text.attention[0].shape[-1]
        # Uniform attention depends on the layer only by its window: computed once for each.
        windows = [self.sizes.window if self.sizes.is_local(layer) else None for layer in range(len(values))]
        even = {
            window: statistics(uniform(length, causal=self.sizes.causal, window=window), text.marks)[:, 0].numpy()
            for window in {*windows}
        }
        self.even.add([even[window] for window in windows])

    def figures(self) -> list[Figure]:
        """Return each figure of each layer (the mean over its heads) and of each head."""
        head_figures = []
        for means, names in ((self.layers, ("layer",)), (self.heads, ("layer", "head"))):
            for cell, where in label_indices(means.mean.shape[:-1], *names):
                for number, name in enumerate(ALL):
                    index = (*cell, number)
                    if means.n[index] > 1:  # a single text has no interval
                        head_figures.append(self._figure(means, index, name, where))
        return head_figures

    def _figure(self, means: RunningMeans, index: tuple[int, ...], name: str, where: dict[str, int | str]) -> Figure:
        return Figure(
            name=name if len(where) > 1 else f"layer_{name}",
            where=where,
            value=float(means.mean[index]),
            n=int(means.n[index]),
            unit="texts",
            interval=means.interval(index),
            baselines={UNIFORM: float(self.even.mean[index[0], index[-1]])},  # of the layer
            data=self.reads,
            seed=self.seed,
        )

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the entropy by layer, and a map of all heads for each of the other figures."""
        present_names = {
            name for name in NAMES if any(figure.baselines[UNIFORM] > 0 for figure in select_figures(figures, name))
        }
        maps = [_map(figures, name, what) for name, what in NAMES.items() if name in present_names]
        parts = [
            paragraph(
                f"Means over {format_count(figures[0].n, 'text')}. A head has a row of attention for "
                "each token, which sums "
                "to 1. Layers and heads count from 1; point at a cell for its value and its interval."
            ),
            _entropy_plot(figures),
            *maps,
            _measure_map(figures, "distance", "Mean distance in tokens", DISTANT),
            _measure_map(figures, "entropy", "Entropy, nats", BROAD),
        ]
        return Section(heading="What the heads look at", parts=parts)


def _entropy_plot(figures: Sequence[Figure]) -> str:
    layers = select_figures(figures, "layer_entropy")
    evens = [(float(figure.where["layer"]), figure.baselines[UNIFORM]) for figure in layers]
    curve = [(float(figure.where["layer"]), figure.value) for figure in layers]
    series = [
        Series(name="mean of the layer", points=curve),
        Series(
            name="a head",
            points=[(float(figure.where["layer"]), figure.value) for figure in select_figures(figures, "entropy")],
            look="spots",
            color=1,
        ),
    ]
    if beginning := [
        (float(figure.where["layer"]), figure.value) for figure in select_figures(figures, "layer_first_entropy")
    ]:
        series.append(Series(name="mean, from [CLS] alone", points=beginning, color=2))
    series.append(Series(name="even over what a token sees", points=evens, color=5))
    return explain_picture(
        line_plot(series, title="Entropy of attention by layer, nats", across="layer"),
        plain=_broadest(layers),
        caution="Entropy grows with the length of a text: compare models on the same texts, and look at the dots, "
        "since a mean hides broad and narrow heads.",
    )


def _broadest(layers: Sequence[Figure]) -> str:
    """Describe in which layers attention is broadest and narrowest."""

    def describe(figure: Figure) -> str:
        even = figure.baselines[UNIFORM]
        return f"{figure.value:.2f} nats, as if over {np.exp(figure.value):.0f} tokens (even attention: {even:.2f})"

    lowest, highest = min(layers, key=lambda figure: figure.value), max(layers, key=lambda figure: figure.value)
    if len(layers) == 1:
        return f"The attention of the one layer has {describe(lowest)}."
    return (
        f"Attention is broadest in layer {highest.where['layer']}: {describe(highest)}; and narrowest in layer "
        f"{lowest.where['layer']}: {describe(lowest)}."
    )


def _values(figures: Sequence[Figure], name: str) -> tuple[Floats, dict[tuple[int, int], str]]:
    """Return the values (L, H) of a figure, and a note for each cell."""
    notes = {}
    for figure in select_figures(figures, name):
        layer, head = int(figure.where["layer"]), int(figure.where["head"])
        ends = "" if figure.interval is None else f", 95% interval {figure.interval[0]:.3g} to {figure.interval[1]:.3g}"
        notes[layer - 1, head - 1] = f"head {layer}-{head}: {figure.value:.3g}{ends}"
    return grid(figures, name, "layer", "head"), notes


def _map(figures: Sequence[Figure], name: str, what: str) -> str:
    values, notes = _values(figures, name)
    layer, head = np.unravel_index(np.nanargmax(values), values.shape)
    even = _even(figures, name)
    strong = int((values > STRONG).sum())
    return explain_picture(
        heat_map(values, notes, title=f"To {what}", ends=(0, 1)),
        plain=f"Head {layer + 1}-{head + 1} looks most at {what}: {values[layer, head]:.0%} of its attention; "
        f"{strong:,} of {values.size:,} heads give it over half. Even attention would give {even:.1%}.",
        caution=_caution(name),
    )


def _even(figures: Sequence[Figure], name: str) -> float:
    """Return the value of uniform attention, the mean over the heads: local layers see fewer tokens."""
    return float(np.mean([figure.baselines[UNIFORM] for figure in select_figures(figures, name)]))


def _caution(name: str) -> str:
    if name in ("first", "separator"):
        return (
            "Much attention to a special piece is often a head's way of doing nothing: its value there can be near "
            "zero. It says little about what the head is for."
        )
    if name == "punctuation":
        return "The part grows with the number of such tokens in the text: compare it with even attention."
    return "What a head looks at is not why the model answers as it does."


def _measure_map(figures: Sequence[Figure], name: str, title: str, sentences: tuple[str, str]) -> str:
    """Return a map of a figure that is no fraction. `describe`: its sentence, with numbers to fill in, and caution."""
    values, notes = _values(figures, name)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    even = _even(figures, name)
    plain, caution = sentences
    return explain_picture(
        heat_map(values, notes, title=title, ends=(0, max(high, even))),
        plain=plain.format(low=low, high=high, even=even),
        caution=caution,
    )
