"""The common part of all probes of layers: sampled items, baselines of a layer's accuracy, and the section.

An item is a word, or two words, with a label. Its states in all layers are kept in half precision, for a limited number
of items. A layer's accuracy is compared with: the most frequent label, the best guess without a model, the embeddings
(layer 0), an encoder with random weights, and a control task in which each word has a random label (Hewitt and Liang
2019). Selectivity is the accuracy minus that of the control task, and excludes what the probe memorised. The codelength
measures how much training data the probe needs (Voita and Titov 2020).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.evaluation.bootstrap import wilson_interval
from osbert.models.contract import Sizes
from osbert.reports.page import Section
from osbert.reports.plot import Mark, Series, explain_picture, line_plot
from osbert_lab.analysis.advance import SILENT, Advance
from osbert_lab.analysis.figures import DEVIATIONS, Figure, Floats, ratio_interval, select_figures
from osbert_lab.analysis.kinds.contract import TextPass, TrainedAnalysis
from osbert_lab.analysis.probe import (
    STRENGTHS,
    Labels,
    LinearProbe,
    States,
    bootstrap_expected_layer,
    choose_strength,
    codelength,
    compute_expected_layer,
    control_labels,
    cumulative,
    portion_ends,
)

ITEMS = {"select": 8_000, "score": 4_000}
"""Most items to train on ("select") and to evaluate on ("score")."""
MIXED = 2_500
"""Most items to train a mix of layers on: each of its steps reads all layers."""
ROOM = 2**26
"""Most float16 numbers of states in memory; for a larger model fewer items are kept."""
LEAST = 200
"""Fewest items to train on, and to score, for a figure."""
CONTROL, EMBEDDINGS = "control task", "embeddings"
FREQUENT, RANDOM = "most frequent label", "random encoder"
UNIFORM = "uniform code"


@dataclass(frozen=True, kw_only=True)
class ProbedItem:
    """One item to label.

    `states` (L + 2, S, D): the states of its S words in each layer, and last in a random encoder. `text`: the number of
    its text. `word`: the type that its control label depends on. `clue`: the input of the guess without a model.
    """

    text: int
    label: str
    word: str
    clue: str
    states: NDArray[np.float16]


class _DrawnItems:
    """At most `most` items, sampled uniformly from all that are added (Vitter's algorithm R)."""

    def __init__(self, most: int, rng: np.random.Generator) -> None:
        self.most, self.rng, self.seen = most, rng, 0
        self.items: list[ProbedItem] = []

    def add(self, item: ProbedItem) -> None:
        self.seen += 1
        # Algorithm R: item number `seen` replaces a random one with probability most / seen.
        index = len(self.items) if len(self.items) < self.most else int(self.rng.integers(self.seen))
        if index < self.most:
            # Appends if `index` is the length, replaces otherwise.
            self.items[index : index + 1] = [item]

    def shuffle_texts(self, seed: int) -> list[ProbedItem]:
        """Return the items with their texts in random order. Items of a text stay together for the online code."""
        texts = sorted({item.text for item in self.items})
        ranks = dict(zip(texts, np.random.default_rng([seed, 7]).permutation(len(texts)).tolist(), strict=True))
        return sorted(self.items, key=lambda item: ranks[item.text])


@dataclass(frozen=True, kw_only=True)
class _ProbeData:
    """Items to train on and items to score, with labels as numbers; -1: a label that the training items lack."""

    names: Sequence[str]
    items: tuple[Sequence[ProbedItem], Sequence[ProbedItem]]
    states: tuple[States, States]  # (L + 2, n, F) each
    gold: tuple[Labels, Labels]
    control: tuple[Labels, Labels]
    advance: Advance

    @property
    def layers(self) -> int:
        return len(self.states[0]) - 1  # the last is the random encoder

    def right(self, layer: int, labels: tuple[Labels, Labels], strength: float) -> NDArray[np.bool_]:
        """Return which of the scored items (n,) a probe of a layer labels correctly."""
        probe = LinearProbe(self.states[0][layer], labels[0], len(self.names), strength=strength)
        self.advance(len(labels[0]))
        hits: NDArray[np.bool_] = probe.predict(self.states[1][layer]) == labels[1]
        return hits

    def bits(self, layer: int, labels: tuple[Labels, Labels], strength: float) -> Floats:
        """Return the bits (n,) of the training labels in the online code of a layer."""
        return codelength(self.states[0][layer], labels[0], len(self.names), strength=strength, advance=self.advance)

    def by_text(self, part: int, values: Floats) -> Floats:
        """Return the sums (..., T) by text of values (..., n) of the items to train on (part 0) or to score (1)."""
        _, texts = np.unique([item.text for item in self.items[part]], return_inverse=True)
        sums = np.zeros((*values.shape[:-1], texts.max() + 1))
        # Transposed, since add.at sums over the first axis.
        np.add.at(sums.T, texts, values.T)
        return sums


class LayerProbes(TrainedAnalysis):
    """Linear probes of the states of some items in all layers. A subclass defines the items."""

    needs_attention = False
    least = f"{LEAST} items to learn from and {LEAST} to score, of two labels or more"
    name: ClassVar[str]
    """The name of its figures."""
    says: ClassVar[str]
    """What is probed, as a noun phrase between "Where" and "can be read"."""
    unit: ClassVar[str] = "words"
    clue: ClassVar[str]
    """The name of the baseline that guesses from `ProbedItem.clue`."""
    slots: ClassVar[int] = 1
    """Words per item."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Start with no item, and with room for as many as ROOM allows."""
        super().__init__(sizes, seed)
        # Items that fit into ROOM; both parts shrink in proportion.
        fitting = ROOM // ((sizes.layers + 2) * sizes.width * self.slots)
        self.drawn = {
            part: _DrawnItems(min(most, fitting * most // sum(ITEMS.values())), np.random.default_rng([seed, number]))
            for number, (part, most) in enumerate(ITEMS.items())
        }

    def items(self, text: TextPass) -> Iterator[tuple[str, ProbedItem]]:
        """Yield the items of a text, each with its part ("select" or "score")."""
        raise NotImplementedError

    def add(self, text: TextPass) -> None:
        """Add the items of a text to the samples."""
        for part, item in self.items(text):
            self.drawn[part].add(item)

    def features(self, states: NDArray[np.float16]) -> States:
        """Return the features (L + 2, n, F) of items with states (L + 2, n, S, D): here their words side by side."""
        return states.reshape(*states.shape[:2], -1)

    @property
    def training(self) -> int:
        """Return how many items the probes of `figures` are trained on; those of a mix count in each of its layers."""
        items, layers = len(self.drawn["select"].items), self.sizes.layers + 1
        coded = sum(portion_ends(items)[:-1])
        each = 2 * layers + 1  # of each layer and its control task, and of the random encoder
        mixed = layers * (layers + 1) // 2 * min(items, MIXED)
        return (len(STRENGTHS) + each) * items + each * coded + mixed

    def figures(self, advance: Advance = SILENT) -> list[Figure]:
        """Return the figures of each layer and of the mix; [] for too few items or a single label."""
        training, scored = (self.drawn[part].shuffle_texts(self.seed) for part in ITEMS)
        names = sorted({item.label for item in training})
        if min(len(training), len(scored)) < LEAST or len(names) < 2:
            return []
        data = self._data(names, training, scored, advance)
        # Chosen once, on the middle layer: a choice for each layer would blur their comparison.
        strength = choose_strength(data.states[0][data.layers // 2], data.gold[0], len(names), advance)
        common = Figure(name="", value=0, n=len(scored), unit=self.unit, data=self.reads, seed=self.seed)
        return [*self._accuracies(data, strength, common), *self._codes(data, strength, common),
                *self._mixes(data, strength, common)]  # fmt: skip

    def _data(
        self, names: Sequence[str], training: list[ProbedItem], scored: list[ProbedItem], advance: Advance
    ) -> _ProbeData:
        # Labels that only the scored items have become -1, which no probe predicts.
        numbers = {name: number for number, name in enumerate(names)}
        gold = [np.array([numbers.get(item.label, -1) for item in items], np.int64) for items in (training, scored)]
        probabilities: Floats = np.bincount(gold[0], minlength=len(names)) / len(gold[0])
        control = [
            control_labels([item.word for item in items], probabilities, self.seed) for items in (training, scored)
        ]
        states = [
            self.features(np.stack([item.states for item in items], 1)) for items in (training, scored)
        ]  # (L + 2, n, F) each
        return _ProbeData(
            names=names,
            items=(training, scored),
            states=(states[0], states[1]),
            gold=(gold[0], gold[1]),
            control=(control[0], control[1]),
            advance=advance,
        )

    def _accuracies(self, data: _ProbeData, strength: float, common: Figure) -> Iterator[Figure]:
        n = common.n
        right = [
            (data.right(layer, data.gold, strength), data.right(layer, data.control, strength))
            for layer in range(data.layers)
        ]
        shared = {
            FREQUENT: _guess_accuracy(data.items, by_clue=False),
            self.clue: _guess_accuracy(data.items, by_clue=True),
            EMBEDDINGS: float(right[0][0].mean()),
            RANDOM: float(data.right(data.layers, data.gold, strength).mean()),
        }
        first = shared[EMBEDDINGS] - float(right[0][1].mean())
        for layer, (hits, control) in enumerate(right):
            where: dict[str, int | str] = {"layer": layer}
            gains = hits.astype(np.float64) - control  # of each item, since both are of the same ones
            selectivity, margin = float(gains.mean()), DEVIATIONS * float(gains.std(ddof=1)) / math.sqrt(n)
            yield replace(
                common,
                name=self.name,
                where=where,
                value=float(hits.mean()),
                interval=wilson_interval(int(hits.sum()), n),
                baselines={**shared, CONTROL: float(control.mean())},
            )
            yield replace(
                common,
                name=f"{self.name}_selectivity",
                where=where,
                value=selectivity,
                interval=(selectivity - margin, selectivity + margin),
                baselines={EMBEDDINGS: first},
            )

    def _codes(self, data: _ProbeData, strength: float, common: Figure) -> Iterator[Figure]:
        # The last one is the random encoder.
        bits = [data.bits(layer, data.gold, strength) for layer in range(data.layers + 1)]
        control = [data.bits(layer, data.control, strength) for layer in range(data.layers)]
        counts = data.by_text(0, np.ones(len(data.gold[0])))
        for layer in range(data.layers):
            yield replace(
                common,
                name=f"{self.name}_bits",
                where={"layer": layer},
                value=float(bits[layer].mean()),
                n=len(data.gold[0]),
                interval=ratio_interval(data.by_text(0, bits[layer]), counts, seed=self.seed),
                baselines={
                    UNIFORM: math.log2(len(data.names)),
                    EMBEDDINGS: float(bits[0].mean()),
                    RANDOM: float(bits[-1].mean()),
                    CONTROL: float(control[layer].mean()),
                },
            )

    def _mixes(self, data: _ProbeData, strength: float, common: Figure) -> Iterator[Figure]:
        """Yield the centre of gravity of a mix of all layers, and the expected layer if it is defined."""
        states, gold = (data.states[0][:-1, :MIXED], data.states[1][:-1]), (data.gold[0][:MIXED], data.gold[1])
        right, layer_weights = cumulative(states, gold, len(data.names), strength, data.advance)
        even = (data.layers - 1) / 2
        centre = float(np.arange(data.layers) @ layer_weights)
        yield replace(common, name=f"{self.name}_centre", value=centre, n=len(gold[0]), baselines={"even": even})
        expected = compute_expected_layer(right.mean(axis=1))
        if math.isfinite(expected):
            interval = bootstrap_expected_layer(
                data.by_text(1, right.astype(np.float64)), data.by_text(1, np.ones(right.shape[1])), self.seed
            )
            yield replace(common, name=f"{self.name}_expected_layer", value=expected, interval=interval)

    @classmethod
    def section(cls, figures: Sequence[Figure]) -> Section:
        """Return the accuracy and the codelength by layer."""
        accuracies = select_figures(figures, cls.name)
        best = max(accuracies, key=lambda figure: figure.value)
        coded = select_figures(figures, f"{cls.name}_bits")
        plot = line_plot(
            [
                _curve(cls.says, [figure.value for figure in accuracies], 0),
                _curve(CONTROL, [figure.baselines[CONTROL] for figure in accuracies], 1),
            ],
            marks=[Mark(value=best.baselines[name], label=name) for name in (cls.clue, RANDOM)],
            title=f"{cls.unit.capitalize()} that a linear probe labels as the data does, by layer",
            percent=True,
            across="layer (0: embeddings)",
        )
        caution = (
            "That a probe reads a label does not say that the model uses it. Items of one sentence are not "
            "independent: the intervals are a little too narrow."
        )
        bits = line_plot(
            [
                _curve(cls.says, [figure.value for figure in coded], 0),
                _curve(CONTROL, [figure.baselines[CONTROL] for figure in coded], 1),
            ],
            marks=[Mark(value=coded[0].baselines[name], label=name) for name in (UNIFORM, RANDOM)],
            title="Bits of a label by the online code",
            across="layer (0: embeddings)",
        )
        parts = [
            explain_picture(plot, plain=cls._plain(figures, best), caution=caution),
            explain_picture(
                bits, plain=_describe_code(coded, figures, cls.name),
                caution="A code of few labels is long at any layer: the probe has to be learnt before it saves bits. "
                "The share of a layer in a mix is not its importance: what is alike in two layers may lie in either.",
            ),
        ]  # fmt: skip
        return Section(heading=f"Where {cls.says} can be read", parts=parts)

    @classmethod
    def _plain(cls, figures: Sequence[Figure], best: Figure) -> str:
        selective = max(select_figures(figures, f"{cls.name}_selectivity"), key=lambda figure: figure.value)
        low, high = best.interval or (best.value, best.value)
        return (
            f"A linear probe reads {cls.says} best from layer {best.where['layer']}: {best.value:.1%} of {best.n:,} "
            f"{cls.unit} ({low:.1%} to {high:.1%}), against {best.baselines[EMBEDDINGS]:.1%} from the embeddings, "
            f"{best.baselines[RANDOM]:.1%} from an encoder with fresh weights, {best.baselines[cls.clue]:.1%} by the "
            f"{cls.clue}, and {best.baselines[FREQUENT]:.1%} by the most frequent label alone. Layer "
            f"{selective.where['layer']} is most selective: {selective.value:.1%} above the control task."
        )


def _curve(name: str, values: Sequence[float], color: int) -> Series:
    return Series(name=name, points=[(float(layer), value) for layer, value in enumerate(values)], color=color)


def _describe_code(coded: Sequence[Figure], figures: Sequence[Figure], name: str) -> str:
    """Describe which layer has the shortest code, and where the mix of layers has its centre."""
    best = min(coded, key=lambda figure: figure.value)
    [centre] = select_figures(figures, f"{name}_centre")
    text = (
        f"The labels of {best.n:,} items take {best.value:.2f} bits each from layer {best.where['layer']}, "
        f"{best.baselines[EMBEDDINGS]:.2f} from the embeddings and {best.baselines[UNIFORM]:.2f} without a model: the "
        f"fewer, the less has to be learnt to read them. The centre of gravity of a mix of all layers is layer "
        f"{centre.value:.1f}; of equal shares it would be {centre.baselines['even']:.1f}."
    )
    expected = select_figures(figures, f"{name}_expected_layer")
    return text + (f" Layer by layer, what a mix gains comes at layer {expected[0].value:.1f}." if expected else "")


def _guess_accuracy(items: tuple[Sequence[ProbedItem], Sequence[ProbedItem]], *, by_clue: bool) -> float:
    """Return the accuracy of each clue's most frequent training label; an unknown clue gets the most frequent of all.

    With by_clue = False the guess is the most frequent label of all.
    """
    training, scored = items
    by: dict[str, Counter[str]] = {}
    for item in training:
        by.setdefault(item.clue if by_clue else "", Counter())[item.label] += 1
    usual = Counter(item.label for item in training).most_common(1)[0][0]
    guesses = {clue: counts.most_common(1)[0][0] for clue, counts in by.items()}
    right = [guesses.get(item.clue if by_clue else "", usual) == item.label for item in scored]
    return sum(right) / len(right)
