"""Whether trees lie in the states: the structural probe of each layer, on words of sentences with dependency trees.

Hewitt and Manning 2019: from the probe's distances the minimum spanning tree over words that are no punctuation has so
many of the tree's arcs (UUAS), and distances are ordered as those of the tree are (Spearman's correlation: a mean over
words, then over the sentences of each length, then over the lengths from 5 to 50). Punctuation is by the universal tag.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from osbert.analysis.figures import Figure, named
from osbert.analysis.kinds.contract import Analysis, PlacedTree, TextPass
from osbert.analysis.probing import EMBEDDINGS, RANDOM, ROOM, word_states
from osbert.analysis.structure import (
    MeasuredTree,
    Squares,
    StructuralProbe,
    rank_correlation,
    right_arcs,
    tree_distances,
)
from osbert.evaluation.bootstrap import wilson_interval
from osbert.models.contract import Sizes
from osbert.reports.explained import explained
from osbert.reports.page import Section
from osbert.reports.plot import Mark, Series, line_plot

TREES = {"select": 2000, "score": 1000}
"""Most trees to train on, and most to score."""
WORDS = 16
"""Words of a tree on average, by which the room for states is divided."""
LENGTHS = range(5, 51)
"""The lengths of sentences whose distances are compared; longer ones are not read at all."""
LEAST = 50
"""Fewer trees than this to train on or to score give no figure."""
LINE = "each word and the next"


@dataclass(frozen=True)
class _KeptTree:
    """A tree with the states (L + 2, W, D) of its words."""

    placed: PlacedTree
    states: NDArray[np.float16]

    @property
    def heads(self) -> Sequence[int]:
        return self.placed.tree.heads

    def measured(self, layer: int) -> MeasuredTree:
        return MeasuredTree(self.states[layer], tree_distances(self.heads))


class Structure(Analysis):
    """Some trees with the states of their words."""

    reads = "trees"
    needs_attention = False
    place = 13

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Begin with no tree."""
        super().__init__(sizes, seed)
        fitting = ROOM // ((sizes.layers + 2) * sizes.width * WORDS)
        self.most = {part: min(most, fitting * most // sum(TREES.values())) for part, most in TREES.items()}
        self.rng = np.random.default_rng([seed, 2])
        self.seen = dict.fromkeys(TREES, 0)
        self.trees: dict[str, list[_KeptTree]] = {part: [] for part in TREES}

    def add(self, text: TextPass) -> None:
        """Keep a tree of 2 to 50 words with one root, or not, as in a sample of all."""
        placed = text.tree
        assert placed is not None
        if not 2 <= len(placed.tree.heads) < LENGTHS.stop or placed.tree.heads.count(-1) != 1:
            return
        kept, part = self.trees[placed.part], placed.part
        self.seen[part] += 1
        place = len(kept) if len(kept) < self.most[part] else int(self.rng.integers(self.seen[part]))
        if place < self.most[part]:
            kept[place : place + 1] = [_KeptTree(placed, word_states(text, placed.tokens))]

    def figures(self) -> list[Figure]:
        """Return the arcs and the correlation of each layer's probe; nothing of too few trees."""
        if min(map(len, self.trees.values())) < LEAST:
            return []
        found = [self._scores(layer) for layer in range(self.sizes.layers + 2)]
        line = _scored(self.trees["score"], [_line(len(tree.heads)) for tree in self.trees["score"]])
        figures = []
        for layer, (arcs, count, correlation) in enumerate(found[:-1]):
            one = Figure(
                name="tree_arcs",
                where={"layer": layer},
                value=arcs / count,
                n=count,
                unit="arcs",
                interval=wilson_interval(arcs, count),
                baselines={
                    LINE: line[0] / count,
                    EMBEDDINGS: found[0][0] / count,
                    RANDOM: found[-1][0] / count,
                },
                data=self.reads,
                seed=self.seed,
            )
            order = replace(
                one,
                name="tree_order",
                value=correlation,
                n=len(self.trees["score"]),
                unit="trees",
                interval=None,
                baselines={LINE: line[2], EMBEDDINGS: found[0][2], RANDOM: found[-1][2]},
            )
            figures += [one, order] if math.isfinite(correlation) else [one]
        return figures

    def _scores(self, layer: int) -> tuple[int, int, float]:
        """Return how many arcs a layer's probe finds, of how many, and the mean correlation; the last is the random."""
        probe = StructuralProbe([tree.measured(layer) for tree in self.trees["select"]], seed=self.seed)
        scored = self.trees["score"]
        return _scored(scored, [probe.distances(tree.states[layer]) for tree in scored])

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return both scores by layer."""
        arcs, order = named(figures, "tree_arcs"), named(figures, "tree_order")
        best = max(arcs, key=lambda one: one.value)
        low, high = best.interval or (best.value, best.value)
        plain = (
            f"From layer {best.where['layer']} a linear map finds {best.value:.1%} of {best.n:,} arcs ({low:.1%} to "
            f"{high:.1%}). The embeddings give {best.baselines[EMBEDDINGS]:.1%}, an encoder with fresh weights "
            f"{best.baselines[RANDOM]:.1%}, and joining each word with the next {best.baselines[LINE]:.1%}."
        )
        caution = (
            "The map is trained on trees. That such a map exists does not say that the model computes with trees. "
            "Figures on other treebanks do not compare: short sentences and other relations change all of them."
        )
        plots = [
            explained(_plot(arcs, "Arcs that are found (UUAS), by layer", percent=True), plain=plain, caution=caution)
        ]
        if order:
            top = max(order, key=lambda one: one.value)
            said = (
                f"Words are ordered by distance most as in the tree in layer {top.where['layer']}: Spearman's "
                f"correlation is {top.value:.2f}, by distance in the text alone {top.baselines[LINE]:.2f}."
            )
            warning = "The mean is over the lengths from 5 to 50 words: a rare length counts as much as a frequent one."
            title = "Order of distances (Spearman), by layer"
            plots.append(explained(_plot(order, title, percent=False), plain=said, caution=warning))
        return Section(heading="Whether trees lie in the states", parts=plots)


def _scored(trees: Sequence[_KeptTree], distances: Sequence[Squares]) -> tuple[int, int, float]:
    """Return how many arcs distances of the words of trees give, of how many, and their mean rank correlation."""
    arcs = count = 0
    by_length: dict[int, list[float]] = {}
    for tree, found in zip(trees, distances, strict=True):
        right, there = right_arcs(found, tree.heads, [tag != "PUNCT" for tag in tree.placed.tree.tags])
        arcs, count = arcs + right, count + there
        if len(tree.heads) in LENGTHS:
            correlation = rank_correlation(found, tree_distances(tree.heads))
            by_length.setdefault(len(tree.heads), []).append(correlation)
    means = [float(np.nanmean(each)) for each in by_length.values() if np.isfinite(each).any()]
    return arcs, count, float(np.mean(means)) if means else float("nan")


def _line(words: int) -> Squares:
    return np.abs(np.subtract.outer(np.arange(words), np.arange(words))).astype(np.float32)


def _plot(figures: Sequence[Figure], title: str, *, percent: bool) -> str:
    points = [(float(one.where["layer"]), one.value) for one in figures]
    marks = [Mark(value=figures[0].baselines[name], label=name) for name in (LINE, RANDOM)]
    return line_plot(
        [Series(name="structural probe", points=points)],
        marks=marks,
        title=title,
        percent=percent,
        across="layer (0: embeddings)",
    )
