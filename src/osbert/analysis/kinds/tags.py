"""Where part of speech can be read: a linear probe on each layer's words, beside what would be right without a model.

A word's state is the mean of its pieces. Accuracy by itself says little: beside it stand the most frequent tag of each
word, the embeddings (layer 0), and a control task, in which each word has a random tag of its own (Hewitt and Liang
2019). Selectivity is the accuracy less that of the control task: what the probe did not learn by heart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from osbert.analysis.figures import Figure, Floats, named
from osbert.analysis.kinds.contract import Analysis, TextPass
from osbert.analysis.probe import Labels, LinearProbe, choose_strength, control_labels
from osbert.evaluation.bootstrap import wilson_interval
from osbert.models.contract import Sizes
from osbert.reports.explained import explained
from osbert.reports.page import Section
from osbert.reports.plot import Mark, Series, line_plot

WORDS = {"select": 16_000, "score": 8_000}
"""Most words to train on, and most to score."""
ROOM = 2**26
"""Most numbers of states that are held, in half precision; of a larger model fewer words are kept."""
LEAST = 200
"""Fewer words than this to train on or to score give no figure."""
FREQUENT = "most frequent tag of the word"
CONTROL = "control task"
EMBEDDINGS = "embeddings"


class _DrawnWords:
    """At most so many words with their tags and states (L + 1, D), sampled from all that are added."""

    def __init__(self, most: int, rng: np.random.Generator) -> None:
        self.most, self.rng, self.seen = most, rng, 0
        self.words: list[str] = []
        self.tags: list[str] = []
        self.states: list[np.ndarray] = []

    def add(self, word: str, tag: str, states: np.ndarray) -> None:
        self.seen += 1
        place = len(self.words) if len(self.words) < self.most else int(self.rng.integers(self.seen))
        if place < self.most:
            self.words[place : place + 1] = [word]
            self.tags[place : place + 1] = [tag]
            self.states[place : place + 1] = [states]


class Tags(Analysis):
    """The states of some words of trees, in all layers."""

    reads = "trees"
    needs_attention = False
    least = f"{LEAST} words to learn from and {LEAST} to score, of two tags or more"
    place = 4

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Begin with no word."""
        super().__init__(sizes, seed)
        fitting = ROOM // ((sizes.layers + 1) * sizes.width)
        self.drawn = {
            part: _DrawnWords(min(most, fitting * most // sum(WORDS.values())), np.random.default_rng([seed, number]))
            for number, (part, most) in enumerate(WORDS.items())
        }

    def add(self, text: TextPass) -> None:
        """Sample some of a tree's words."""
        assert text.tree is not None
        tokens = text.tree.tokens / text.tree.tokens.sum(-1, keepdims=True)  # (W, T)
        states = np.array([tokens @ state.float().cpu().numpy() for state in text.states], np.float16)  # (L + 1, W, D)
        for number, (word, tag) in enumerate(zip(text.tree.tree.words, text.tree.tree.tags, strict=True)):
            if tag != "_":
                self.drawn[text.tree.part].add(word.lower(), tag, states[:, number])

    def figures(self) -> list[Figure]:
        """Return the accuracy and the selectivity of each layer's probe; nothing where there is one tag alone."""
        training, scored = self.drawn["select"], self.drawn["score"]
        names = sorted({*training.tags})
        if min(len(training.words), len(scored.words)) < LEAST or len(names) < 2:
            return []
        gold, controls = self._labels(names)
        states = [np.array(one.states).transpose(1, 0, 2) for one in (training, scored)]  # (L + 1, n, D) each
        strength = choose_strength(states[0][len(states[0]) // 2], gold[0], len(names))

        def hits(layer: int, labels: tuple[Labels, Labels]) -> int:
            probe = LinearProbe(states[0][layer], labels[0], len(names), strength=strength)
            return int((probe.predict(states[1][layer]) == labels[1]).sum())

        n = len(scored.words)
        right = [(hits(layer, gold), hits(layer, controls)) for layer in range(len(states[0]))]
        common = Figure(name="", value=0, n=n, unit="words", data=self.reads, seed=self.seed)
        frequent = _frequent(training, scored)
        found = []
        for layer, (tags, control) in enumerate(right):
            baselines = {FREQUENT: frequent, EMBEDDINGS: right[0][0] / n, CONTROL: control / n}
            one = replace(
                common,
                name="tags",
                where={"layer": layer},
                value=tags / n,
                interval=wilson_interval(tags, n),
                baselines=baselines,
            )
            chance = {EMBEDDINGS: (right[0][0] - right[0][1]) / n}
            found += [
                one,
                replace(one, name="tags_selectivity", value=(tags - control) / n, interval=None, baselines=chance),
            ]
        return found

    def _labels(self, names: Sequence[str]) -> tuple[tuple[Labels, Labels], tuple[Labels, Labels]]:
        """Return the tags as numbers, and the labels of the control task, each of training and of scored words.

        A tag that training lacks has the number -1.
        """
        numbers = {name: number for number, name in enumerate(names)}
        training, scored = self.drawn["select"], self.drawn["score"]
        gold = tuple(np.array([numbers.get(tag, -1) for tag in one.tags], np.int64) for one in (training, scored))
        probabilities: Floats = np.bincount(gold[0], minlength=len(names)) / len(gold[0])
        controls = tuple(control_labels(one.words, probabilities, self.seed) for one in (training, scored))
        return (gold[0], gold[1]), (controls[0], controls[1])

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the accuracy and the control task's by layer."""
        found = named(figures, "tags")
        best = max(found, key=lambda one: one.value)
        selective = max(named(figures, "tags_selectivity"), key=lambda one: one.value)
        low, high = best.interval or (best.value, best.value)

        def curve(name: str, values: Sequence[float], color: int) -> Series:
            points = [(float(one.where["layer"]), value) for one, value in zip(found, values, strict=True)]
            return Series(name=name, points=points, color=color)

        plot = line_plot(
            [
                curve("part of speech", [one.value for one in found], 0),
                curve("control task", [one.baselines[CONTROL] for one in found], 1),
            ],
            marks=[Mark(value=best.baselines[FREQUENT], label=FREQUENT)],
            title="Words whose tag a linear probe reads, by layer",
            percent=True,
            across="layer (0: embeddings)",
        )
        plain = (
            f"Part of speech is read best from layer {best.where['layer']}: {best.value:.1%} of {best.n:,} words "
            f"({low:.1%} to {high:.1%}), against {best.baselines[EMBEDDINGS]:.1%} from the embeddings and "
            f"{best.baselines[FREQUENT]:.1%} from the most frequent tag of each word. Layer {selective.where['layer']} "
            f"is most selective: {selective.value:.1%} above the control task."
        )
        caution = (
            "That a probe reads a tag does not say that the model uses it. Words of one sentence are not independent: "
            "the intervals are a little too narrow."
        )
        return Section(heading="Where part of speech is", parts=[explained(plot, plain=plain, caution=caution)])


def _frequent(training: _DrawnWords, scored: _DrawnWords) -> float:
    """Return how often a word's most frequent tag in training is right; of an unknown word the most frequent of all."""
    by_word: dict[str, Counter[str]] = {}
    for word, tag in zip(training.words, training.tags, strict=True):
        by_word.setdefault(word, Counter())[tag] += 1
    usual = Counter(training.tags).most_common(1)[0][0]
    found = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
    right = [found.get(word, usual) == tag for word, tag in zip(scored.words, scored.tags, strict=True)]
    return sum(right) / len(right)
