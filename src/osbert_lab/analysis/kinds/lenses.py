"""How predictions develop by layer: the logit lens and the tuned lens.

In a sample of the texts 15% of the pieces are masked, and the prediction from each layer is compared with that of the
last layer. A left-to-right model predicts the same pieces from those before them. The maps of the tuned lens are
trained on some texts and evaluated on others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.evaluation.bootstrap import wilson_interval
from osbert.reports.page import Section
from osbert.reports.plot import Mark, Series, explain_picture, line_plot
from osbert_lab.analysis.figures import Figure, Floats, RunningMeans, select_figures
from osbert_lab.analysis.kinds.contract import Advance, LanguageExperiment
from osbert_lab.analysis.lens import layer_states, read_out, settling_layers
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.predicted_part import with_predicted_part
from osbert_lab.analysis.sample import TextSample
from osbert_lab.analysis.tuned_lens import PASSES, TunedLens, fitting_states

SHARE = 0.15
"""Fraction of the pieces of a text that are predicted, as in pretraining."""
FITTED, SCORED = 1600, 800
"""Most positions to fit the maps on, and to evaluate."""
ROOM = 2**25
"""Most numbers of states in memory; for a larger model fewer positions are read."""
LEAST = 40
"""Fewest positions of each part for figures."""
LENSES = {"": "logit lens", "_tuned": "tuned lens"}
"""Suffixes of the figures' names, and the name of each lens."""


class Lenses(LanguageExperiment):
    """The predictions from each layer by both lenses."""

    least = f"{LEAST} pieces to predict in each half of the texts"
    position = 30

    def work(self, model: AnalysedModel, sample: TextSample) -> int:
        """Return an estimate of the tokens read: those of the sampled texts."""
        return min(sample.tokens, round((FITTED + SCORED) / SHARE))

    def measure(self, model: AnalysedModel, sample: TextSample, advance: Advance) -> list[Figure]:
        """Return the figures of each layer by both lenses."""
        assert model.language is not None
        sizes = model.backbone.architecture
        most = min(FITTED + SCORED, ROOM // ((sizes.layers + 1) * sizes.width))
        scored_most = most * SCORED // (FITTED + SCORED)
        parts = []
        for part, (count, half) in enumerate(
            ((most - scored_most, slice(0, None, 2)), (scored_most, slice(1, None, 2)))
        ):
            examples = list(
                _until(self._hide_pieces(model, sample.examples[half], part), count, model.language.head.target)
            )
            batches = list(_advancing(model, examples, advance))
            if sum(len(labels) for labels, _ in batches) < LEAST:
                return []
            parts.append(
                (
                    np.concatenate([labels for labels, _ in batches]),
                    np.concatenate([states for _, states in batches], axis=1),
                )
            )
        fitting, scored = parts
        return _figures(model, fitting, scored, advance)

    def _hide_pieces(self, model: AnalysedModel, examples: Sequence[Example], part: int) -> Iterator[Example]:
        language = model.language
        assert language is not None
        mask = None if language.causal else language.mask
        for number, example in enumerate(examples):
            rng = np.random.default_rng([model.seed, 4, part, number])
            if labelled_example := with_predicted_part(example, language.head.target, SHARE, rng, mask=mask):
                yield labelled_example

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the agreement of each layer with the last one, and the entropy by layer."""
        plain, tuned = (_settling_figure(figures, end) for end in LENSES)
        layers = int(plain.baselines["layers"])
        agreement = [
            _curve(figures, f"lens_agrees{end}", name, color) for color, (end, name) in enumerate(LENSES.items())
        ]
        usual = select_figures(figures, "lens_agrees")[0].baselines["most frequent answer"]
        first = explain_picture(
            line_plot(
                agreement, title="Layers that predict what the last one predicts", percent=True,
                across="layer (0: embeddings)", marks=[Mark(value=usual, label="its most frequent answer")],
            ),
            plain=f"Through the logit lens a prediction is settled from layer {plain.value:.1f} of {layers} on, "
            f"through the tuned lens from layer {tuned.value:.1f}, on average over {plain.n:,} pieces.",
            caution="The logit lens reads low layers in the words of the last one: where their states lie elsewhere it "
            "shows nothing, although something may be there. Compare it with the tuned lens.",
        )  # fmt: skip
        entropies = [
            _curve(figures, f"lens_entropy{end}", name, color) for color, (end, name) in enumerate(LENSES.items())
        ]
        entropy_figures = select_figures(figures, "lens_entropy")
        last = select_figures(figures, "lens_right")[-1]
        second = explain_picture(
            line_plot(entropies, title="Entropy of the predictions by layer, in nats", across="layer (0: embeddings)"),
            plain=f"The last layer's predictions have an entropy of {entropy_figures[-1].value:.2f} nats on average; "
            f"if all pieces were alike it would be {entropy_figures[-1].baselines['all pieces alike']:.2f}. "
            f"{last.value:.1%} are right, "
            f"against {last.baselines['most frequent piece']:.1%} for the most frequent piece.",
            caution="A low entropy is no knowledge: a lens can be sure and wrong. The share of right pieces by layer "
            "is in analysis.json.",
        )
        return Section(heading="How a prediction settles", parts=[first, second])


def _settling_figure(figures: Sequence[Figure], end: str) -> Figure:
    [figure] = select_figures(figures, f"lens_settled{end}")
    return figure


def _curve(figures: Sequence[Figure], name: str, title: str, color: int) -> Series:
    points = [(float(figure.where["layer"]), figure.value) for figure in select_figures(figures, name)]
    return Series(name=title, points=points, color=color)


def _until(examples: Iterator[Example], positions: int, target: str) -> Iterator[Example]:
    """Yield examples until they have `positions` positions to predict."""
    for example in examples:
        if positions <= 0:
            return
        positions -= len(example.targets[target].labels)
        yield example


def _advancing(
    model: AnalysedModel, examples: Sequence[Example], advance: Advance
) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Yield the labels (M,) and the states (L + 1, M, D) of a batch of examples."""
    assert model.language is not None
    for labels, states, tokens in layer_states(model.language, examples):
        advance(tokens)
        yield labels, states


def _figures(
    model: AnalysedModel,
    fitting: tuple[NDArray[np.int64], Floats],
    scored: tuple[NDArray[np.int64], Floats],
    advance: Advance,
) -> list[Figure]:
    """Return the figures from labels (n,) and states (L + 1, n, D) of both parts."""
    assert model.language is not None
    labels, states = scored
    layers = len(states)
    # Both baselines are chosen on the fitting part and scored on the other.
    usual = int(np.bincount(fitting[0]).argmax())
    answers, _, _ = read_out(model.language, [fitting[1][-1]])
    answer = int(np.bincount(answers[0]).argmax())
    common = Figure(name="", value=0, n=len(labels), unit="pieces", data=Lenses.reads, seed=model.seed)
    below, last = fitting[1][:-1], fitting[1][-1]
    trained = advance.part("training items of lenses", len(below) * PASSES * len(fitting_states(last)))
    lenses = [TunedLens.train(model.language, lower_states, last, trained) for lower_states in below]
    moved = [lens(lower_states) for lens, lower_states in zip(lenses, states[:-1], strict=True)]
    # One read-out for both lenses: first the L mapped layers, then all L + 1 layers as they are.
    likeliest, entropies, divergences = read_out(model.language, [*moved, *states])
    indices_by_lens = {
        "": [*range(layers - 1, 2 * layers - 1)],
        "_tuned": [*range(layers - 1), -1],
    }  # the last layer has no map
    alike = {"all pieces alike": math.log(model.backbone.architecture.vocabulary)}
    figures: list[Figure] = []
    for end in LENSES:
        pieces, entropy, divergence = (
            likeliest[indices_by_lens[end]],
            entropies[indices_by_lens[end]],
            divergences[indices_by_lens[end]],
        )
        for layer in range(layers):
            at = replace(common, where={"layer": layer})
            hits = replace(
                at, name=f"lens_right{end}", baselines={"most frequent piece": float((labels == usual).mean())}
            )
            figures += [
                _mean(replace(at, name=f"lens_entropy{end}", baselines=alike), entropy[layer]),
                _mean(replace(at, name=f"lens_divergence{end}", baselines={"last layer": 0.0}), divergence[layer]),
                _rate(hits, pieces[layer] == labels),
            ]
        for layer in range(layers):
            baselines = {"most frequent answer": float((pieces[-1] == answer).mean())}
            agreement = replace(common, name=f"lens_agrees{end}", where={"layer": layer}, baselines=baselines)
            figures.append(_rate(agreement, pieces[layer] == pieces[-1]))
        depth = {"layers": float(layers - 1)}
        figures.append(_mean(replace(common, name=f"lens_settled{end}", baselines=depth), settling_layers(pieces)))
    return figures


def _rate(figure: Figure, hits: NDArray[np.bool_]) -> Figure:
    return replace(figure, value=float(hits.mean()), interval=wilson_interval(int(hits.sum()), len(hits)))


def _mean(figure: Figure, values: NDArray[np.generic]) -> Figure:
    means = RunningMeans()
    for value in values:
        means.add([value])
    return replace(figure, value=float(means.mean[0]), interval=means.interval(0))
