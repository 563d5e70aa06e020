"""Whether dependency trees can be read from the states: the structural probe of each layer.

Hewitt and Manning 2019. UUAS is the fraction of a tree's arcs that are in the minimum spanning tree of the probe's
distances, over words that are not punctuation (by the universal tag). The second figure is Spearman's correlation of
the distances with those in the tree: the mean over words, over sentences of each length, and over lengths from 5 to 50.

Each layer is compared with a control task: trees that depend on word types alone, which a probe can only memorise. The
codelength is that of all distances. A mix of layers is trained together with its probe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from osbert.evaluation.bootstrap import wilson_interval
from osbert.models.contract import Sizes
from osbert.reports.page import Section
from osbert.reports.plot import Mark, Series, explain_picture, line_plot
from osbert_lab.analysis.advance import SILENT, Advance
from osbert_lab.analysis.figures import DEVIATIONS, Figure, Floats, ratio_interval, select_figures
from osbert_lab.analysis.kinds.contract import PlacedTree, TextPass, TrainedAnalysis
from osbert_lab.analysis.probe import compute_expected_layer
from osbert_lab.analysis.probing import CONTROL, EMBEDDINGS, RANDOM, ROOM, UNIFORM
from osbert_lab.analysis.structure import (
    EPOCHS,
    MeasuredTree,
    Squares,
    StructuralProbe,
    control_heads,
    rank_correlation,
    right_arcs,
    tree_codelength,
    tree_distances,
    tree_portion_ends,
)

TREES = {"select": 2000, "score": 1000}
"""Most trees to train on and to score."""
WORDS = 16
"""Mean number of words of a tree, for the estimate of memory."""
LENGTHS = range(5, 51)
"""Lengths of sentences whose distances are compared; longer sentences are not read."""
LEAST = 50
"""Fewest trees, to train on and to score, for figures."""
MIXED = 400
"""Most trees to train a mix of layers on: each of its steps reads all layers."""
LINE = "each word and the next"


@dataclass(frozen=True)
class _KeptTree:
    """A sentence with the states (L + 2, W, D) of its words, and its tree or a control tree."""

    placed: PlacedTree
    states: NDArray[np.float16]
    heads: Sequence[int]
    distances: Squares

    @property
    def counted(self) -> list[bool]:
        return [tag != "PUNCT" for tag in self.placed.tree.tags]

    def control(self, seed: int) -> _KeptTree:
        heads = control_heads(self.placed.tree.words, self.counted, seed)
        return replace(self, heads=heads, distances=tree_distances(heads))

    def select_layers(self, layers: int | slice) -> MeasuredTree:
        return MeasuredTree(self.states[layers], self.distances)


@dataclass(frozen=True)
class _TreeScores:
    """The numbers of correct and of all arcs, and the mean rank correlation."""

    right: int
    count: int
    correlation: float

    @property
    def arc_accuracy(self) -> float:
        return self.right / self.count


Parts = Mapping[str, Sequence[_KeptTree]]


class Structure(TrainedAnalysis):
    """A sample of trees with the states of their words."""

    reads = "trees"
    needs_attention = False
    least = f"{LEAST} trees of 2 to {LENGTHS.stop - 1} words to learn from and {LEAST} to score"
    position = 13

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Start with no tree, and with room for as many as ROOM allows."""
        super().__init__(sizes, seed)
        fitting = ROOM // ((sizes.layers + 2) * sizes.width * WORDS)
        self.most = {part: min(most, fitting * most // sum(TREES.values())) for part, most in TREES.items()}
        self.rng = np.random.default_rng([seed, 2])
        self.seen = dict.fromkeys(TREES, 0)
        self.trees: dict[str, list[_KeptTree]] = {part: [] for part in TREES}

    def add(self, text: TextPass) -> None:
        """Add a tree of 2 to 50 words with one root to the sample (algorithm R)."""
        placed = text.tree
        assert placed is not None
        if not 2 <= len(placed.tree.heads) < LENGTHS.stop or placed.tree.heads.count(-1) != 1:
            return
        trees, part = self.trees[placed.part], placed.part
        self.seen[part] += 1
        index = len(trees) if len(trees) < self.most[part] else int(self.rng.integers(self.seen[part]))
        if index < self.most[part]:
            states, heads = text.word_states, placed.tree.heads
            # Appends if `index` is the length, replaces otherwise.
            trees[index : index + 1] = [_KeptTree(placed, states, heads, tree_distances(heads))]

    @property
    def training(self) -> int:
        """Return how many trees the probes of `figures` are trained on, those of every epoch counted."""
        trees, layers = len(self.trees["select"]), self.sizes.layers + 1
        coded = sum(tree_portion_ends(trees)[:-1]) if trees else 0
        return EPOCHS * ((2 * layers + 1) * (trees + coded) + layers * min(trees, MIXED))

    def figures(self, advance: Advance = SILENT) -> list[Figure]:
        """Return arcs, correlation and codelength of each layer, and figures of the mix; [] for too few trees."""
        if min(map(len, self.trees.values())) < LEAST:
            return []
        order = np.random.default_rng([self.seed, 7]).permutation(len(self.trees["select"]))
        self.trees["select"] = [self.trees["select"][index] for index in order]  # they came by their lengths
        control = {part: [tree.control(self.seed) for tree in trees] for part, trees in self.trees.items()}
        if not sum(_arcs(tree) for trees in (self.trees["score"], control["score"]) for tree in trees):
            return []
        layer_scores = [self._scores(self.trees, layer, advance) for layer in range(self.sizes.layers + 2)]
        learnt = [self._scores(control, layer, advance) for layer in range(self.sizes.layers + 1)]
        scored = self.trees["score"]
        line = _score_trees(scored, [_line(len(tree.heads)) for tree in scored])
        figures = []
        for layer, (scores, control_scores) in enumerate(zip(layer_scores[:-1], learnt, strict=True)):
            arcs = Figure(
                name="tree_arcs",
                where={"layer": layer},
                value=scores.arc_accuracy,
                n=scores.count,
                unit="arcs",
                interval=wilson_interval(scores.right, scores.count),
                baselines={
                    LINE: line.arc_accuracy,
                    EMBEDDINGS: layer_scores[0].arc_accuracy,
                    RANDOM: layer_scores[-1].arc_accuracy,
                    CONTROL: control_scores.arc_accuracy,
                },
                data=self.reads,
                seed=self.seed,
            )
            selectivity = replace(
                arcs,
                name="tree_arcs_selectivity",
                value=(gain := scores.arc_accuracy - control_scores.arc_accuracy),
                interval=(gain - (margin := _margin(scores, control_scores)), gain + margin),
                baselines={EMBEDDINGS: layer_scores[0].arc_accuracy - learnt[0].arc_accuracy},
            )
            ordered = replace(
                arcs,
                name="tree_order",
                value=scores.correlation,
                n=len(scored),
                unit="trees",
                interval=None,
                baselines={
                    LINE: line.correlation,
                    EMBEDDINGS: layer_scores[0].correlation,
                    RANDOM: layer_scores[-1].correlation,
                },
            )
            figures += [arcs, selectivity, *([ordered] if math.isfinite(ordered.value) else [])]
        return [*figures, *self._codes(control, advance), *self._mixes(figures[0], advance)]

    def _scores(self, trees: Parts, layers: int | slice, advance: Advance) -> _TreeScores:
        """Return the scores of a probe of one layer (the last is the random encoder) or of a mix of layers."""
        return self._probe(trees, layers, advance)[0]

    def _probe(self, trees: Parts, layers: int | slice, advance: Advance) -> tuple[_TreeScores, Floats]:
        """Return the scores of a probe, and the weight of each of its layers."""
        measured = [tree.select_layers(layers) for tree in trees["select"]]
        probe = StructuralProbe(measured, seed=self.seed, advance=advance)
        return _score_trees(
            trees["score"], [probe.distances(tree.states[layers]) for tree in trees["score"]]
        ), probe.layer_weights

    def _codes(self, control: Parts, advance: Advance) -> Iterator[Figure]:
        """Yield for each layer the bits per distance in the online code of the training trees."""

        def code_trees(trees: Parts, layer: int) -> tuple[Floats, Floats, Floats]:
            measured = [tree.select_layers(layer) for tree in trees["select"]]
            return tree_codelength(measured, seed=self.seed, advance=advance)

        def mean(bits: Floats, counts: Floats) -> float:
            return float(bits.sum() / counts.sum())

        layer_codes = [code_trees(self.trees, layer) for layer in range(self.sizes.layers + 2)]
        for layer, (layer_bits, even, counts) in enumerate(layer_codes[:-1]):
            learnt = code_trees(control, layer)
            yield Figure(
                name="tree_arcs_bits",
                where={"layer": layer},
                value=mean(layer_bits, counts),
                n=int(counts.sum()),
                unit="distances",
                interval=ratio_interval(layer_bits, counts, seed=self.seed),
                baselines={
                    UNIFORM: mean(even, counts),
                    EMBEDDINGS: mean(layer_codes[0][0], counts),
                    RANDOM: mean(layer_codes[-1][0], counts),
                    CONTROL: mean(learnt[0], counts),
                },
                data=self.reads,
                seed=self.seed,
            )

    def _mixes(self, common: Figure, advance: Advance) -> Iterator[Figure]:
        """Yield the centre of gravity of a mix of all layers, and the expected layer if it is defined."""
        layers = self.sizes.layers + 1
        some = {"select": self.trees["select"][:MIXED], "score": self.trees["score"]}
        mixes = [self._probe(some, slice(upper), advance) for upper in range(1, layers + 1)]
        _, layer_weights = mixes[-1]
        centre = replace(common, where={}, interval=None, unit="trees", n=len(some["select"]))
        yield replace(
            centre,
            name="tree_arcs_centre",
            value=float(np.arange(layers) @ layer_weights),
            baselines={"even": (layers - 1) / 2},
        )
        scores = np.array([mix_scores.arc_accuracy for mix_scores, _ in mixes])
        if math.isfinite(expected := compute_expected_layer(scores)):
            yield replace(centre, name="tree_arcs_expected_layer", value=expected, baselines={})

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return both scores by layer."""
        arcs, order = select_figures(figures, "tree_arcs"), select_figures(figures, "tree_order")
        best = max(arcs, key=lambda figure: figure.value)
        low, high = best.interval or (best.value, best.value)
        plain = (
            f"From layer {best.where['layer']} a linear map finds {best.value:.1%} of {best.n:,} arcs ({low:.1%} to "
            f"{high:.1%}). The embeddings give {best.baselines[EMBEDDINGS]:.1%}, an encoder with fresh weights "
            f"{best.baselines[RANDOM]:.1%}, and joining each word with the next {best.baselines[LINE]:.1%}. Of trees "
            f"by the words' types alone it finds {best.baselines[CONTROL]:.1%}."
        )
        caution = (
            "The map is trained on trees. That such a map exists does not say that the model computes with trees. "
            "Figures on other treebanks do not compare: short sentences and other relations change all of them."
        )
        plots = [
            explain_picture(
                _plot(arcs, "Arcs that are found (UUAS), by layer", percent=True), plain=plain, caution=caution
            )
        ]
        if order:
            top = max(order, key=lambda figure: figure.value)
            sentence = (
                f"Words are ordered by distance most as in the tree in layer {top.where['layer']}: Spearman's "
                f"correlation is {top.value:.2f}, by distance in the text alone {top.baselines[LINE]:.2f}."
            )
            warning = "The mean is over the lengths from 5 to 50 words: a rare length counts as much as a frequent one."
            title = "Order of distances (Spearman), by layer"
            plots.append(explain_picture(_plot(order, title, percent=False), plain=sentence, caution=warning))
        plots.append(_code(figures))
        return Section(heading="Whether trees lie in the states", parts=plots)


def _arcs(tree: _KeptTree) -> int:
    return right_arcs(tree.distances, tree.heads, tree.counted)[1]


def _score_trees(trees: Sequence[_KeptTree], distances: Sequence[Squares]) -> _TreeScores:
    """Return the scores of squared distances between the words of trees."""
    arcs = count = 0
    by_length: dict[int, list[float]] = {}
    for tree, squares in zip(trees, distances, strict=True):
        right, gold_count = right_arcs(squares, tree.heads, tree.counted)
        arcs, count = arcs + right, count + gold_count
        if len(tree.heads) in LENGTHS:
            by_length.setdefault(len(tree.heads), []).append(rank_correlation(squares, tree.distances))
    # The mean of the means by length, as in the paper: rare lengths count as much as frequent ones.
    means = [float(np.nanmean(each)) for each in by_length.values() if np.isfinite(each).any()]
    return _TreeScores(arcs, count, float(np.mean(means)) if means else float("nan"))


def _margin(probe_scores: _TreeScores, control_scores: _TreeScores) -> float:
    """Return half the width of the interval of a difference of two fractions of independent arcs."""
    variances = (
        scores.arc_accuracy * (1 - scores.arc_accuracy) / scores.count for scores in (probe_scores, control_scores)
    )
    return DEVIATIONS * math.sqrt(sum(variances))


def _line(words: int) -> Squares:
    return np.abs(np.subtract.outer(np.arange(words), np.arange(words))).astype(np.float32)


def _plot(figures: Sequence[Figure], title: str, *, percent: bool) -> str:
    marks = [Mark(value=figures[0].baselines[name], label=name) for name in (LINE, RANDOM)]
    return line_plot(
        _curves(figures),
        marks=marks,
        title=title,
        percent=percent,
        across="layer (0: embeddings)",
    )


def _curves(figures: Sequence[Figure]) -> list[Series]:
    """Return the curve of a figure by layer, and of its control task if it has one."""
    points = [(float(figure.where["layer"]), figure.value) for figure in figures]
    learnt = [
        (float(figure.where["layer"]), figure.baselines[CONTROL]) for figure in figures if CONTROL in figure.baselines
    ]
    control = [Series(name=CONTROL, points=learnt, color=1)] if learnt else []
    return [Series(name="structural probe", points=points), *control]


def _code(figures: Sequence[Figure]) -> str:
    """Return the plot of bits per distance by layer, and describe where the mix of layers has its centre."""
    coded = select_figures(figures, "tree_arcs_bits")
    [centre] = select_figures(figures, "tree_arcs_centre")
    best = min(coded, key=lambda figure: figure.value)
    plain = (
        f"A distance takes {best.value:.2f} bits from layer {best.where['layer']}, {best.baselines[EMBEDDINGS]:.2f} "
        f"from the embeddings and {best.baselines[UNIFORM]:.2f} without a model. The centre of gravity of a mix of all "
        f"layers is layer {centre.value:.1f}; of equal shares it would be {centre.baselines['even']:.1f}."
    )
    caution = (
        "The distances of one sentence follow from each other; the code counts each of them as if it stood alone. The "
        "control's trees are flat, so that their distances take fewer bits: compare layers, not the two curves."
    )
    plot = line_plot(
        _curves(coded),
        marks=[Mark(value=coded[0].baselines[name], label=name) for name in (UNIFORM, RANDOM)],
        title="Bits of a distance by the online code",
        across="layer (0: embeddings)",
    )
    return explain_picture(plot, plain=plain, caution=caution)
