"""Which of two sentences a model prefers: minimal pairs of BLiMP (Warstadt et al. 2020), by phenomenon.

The score of a sentence is its pseudo-log-likelihood (Salazar et al. 2020), or its log-likelihood by a left-to-right
model. A pair is right if the acceptable sentence scores higher; a tie is wrong. The overall figure is the mean over
paradigms, as in the paper. Masking each piece by itself overrates long words, so both ways of masking are measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from osbert.analysis.scoring import Masking
from osbert.evaluation.bootstrap import wilson_interval
from osbert.reports.page import Section, table
from osbert.reports.plot import explain_picture
from osbert_lab.analysis.figures import DEVIATIONS, Figure, Floats, select_figures
from osbert_lab.analysis.judgements import MinimalPair, Pieces, lay_out_pieces, work
from osbert_lab.analysis.kinds.contract import Advance, LanguageExperiment
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.sample import ItemSample
from osbert_lab.strips import Dot, Strip, strip_plot

PAIRS = "minimal_pairs"
ENDS: dict[Masking, str] = {"piece": "", "word": "_word"}
"""Suffixes of the names of figures, by what is masked."""
WINDOW = 64
"""Number of pairs that are scored together."""


class MinimalPairs(LanguageExperiment):
    """The preferences of a model with a language head."""

    reads = "minimal_pairs"
    position = 40

    def measure(self, model: AnalysedModel, sample: ItemSample[MinimalPair], advance: Advance) -> list[Figure]:
        """Return the accuracy of each paradigm, of each phenomenon, and the mean over all paradigms."""
        assert model.language is not None
        maskings: list[Masking] = ["piece"] if model.language.causal else ["piece", "word"]
        margins: dict[Masking, list[float]] = {masking: [] for masking in maskings}
        for first in range(0, len(sample.items), WINDOW):
            sentences = [
                sentence for pair in sample.items[first : first + WINDOW] for sentence in (pair.good, pair.bad)
            ]
            scores = _scores(model, sentences, maskings)
            for masking, sentence_scores in scores.items():
                # Sentences alternate: acceptable, not acceptable.
                margins[masking] += (sentence_scores[::2] - sentence_scores[1::2]).tolist()
            advance(work(sentences, model.packer))
        return [
            figure
            for masking, pair_margins in margins.items()
            for figure in _figures(sample.items, np.array(pair_margins) > 0, ENDS[masking], model.seed)
        ]

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the paradigms of each phenomenon on one scale, and a table of the phenomena."""
        [mean] = select_figures(figures, f"{PAIRS}_mean")
        words = {figure.where.get("phenomenon"): figure for figure in select_figures(figures, "phenomenon_word")}
        phenomena = sorted(select_figures(figures, "phenomenon"), key=lambda figure: figure.value)
        low, high = mean.interval or (mean.value, mean.value)
        ends = [figure.interval or (0.0, 1.0) for figure in select_figures(figures, PAIRS)]
        wide = max(last - first for first, last in ends) / 2
        strips = []
        for phenomenon in phenomena:
            paradigms = [
                figure
                for figure in select_figures(figures, PAIRS)
                if figure.where["phenomenon"] == phenomenon.where["phenomenon"]
            ]
            dots = [
                Dot(value=figure.value, label=f"{figure.where['paradigm']}: {_format_rate(figure)}")
                for figure in paradigms
            ]
            strips.append(Strip(name=str(phenomenon.where["phenomenon"]).replace("_", " "), dots=dots))
        picture = explain_picture(
            strip_plot(strips, title="Pairs in which the acceptable sentence is likelier, by paradigm"),
            plain=f"The acceptable sentence is likelier in {mean.value:.1%} of pairs ({low:.1%} to {high:.1%}), the "
            f"mean over {len(select_figures(figures, PAIRS)):,} paradigms; guessing gives 50%. A dot is a paradigm, a "
            f"line the median; the hardest phenomenon is {strips[0].name}, the easiest {strips[-1].name}.",
            caution="A preference is no judgement of grammar: frequent words and short sentences are likelier, too. "
            f"Few pairs are read of each paradigm: its interval alone reaches up to {wide:.0%} to either side.",
        )
        head = ["phenomenon", "right", "n", "whole words masked", "shorter is right"]
        rows = [
            [
                str(figure.where["phenomenon"]).replace("_", " "),
                _format_rate(figure),
                f"{figure.n:,}",
                f"{words[figure.where['phenomenon']].value:.1%}" if words else "",
                f"{figure.baselines['shorter']:.1%}",
            ]
            for figure in phenomena
        ]
        return Section(heading="What it prefers: minimal pairs", parts=[picture, table(rows, head=head)])


def _format_rate(figure: Figure) -> str:
    low, high = figure.interval or (figure.value, figure.value)
    return f"{figure.value:.1%} ({low:.1%} to {high:.1%})"


def _scores(model: AnalysedModel, sentences: Sequence[Pieces], maskings: Iterable[Masking]) -> dict[Masking, Floats]:
    """Return the scores of sentences by masking. Sentences without a word of two pieces are scored once."""
    assert model.language is not None
    examples = [lay_out_pieces(sentence, model.packer) for sentence in sentences]
    scores_by_masking: dict[Masking, Floats] = {}
    for masking in maskings:
        long = [
            index
            for index, example in enumerate(examples)
            if masking == "piece" or _has_long_word(example.words, example.special)
        ]
        scores = scores_by_masking["piece"].copy() if scores_by_masking else np.empty(len(examples))
        parts = model.language.log_probabilities([examples[index] for index in long], masking=masking)
        for index, part in zip(long, parts, strict=True):
            scores[index] = np.nansum(part)
        scores_by_masking[masking] = scores
    return scores_by_masking


def _has_long_word(words: np.ndarray, special: np.ndarray) -> bool:
    return bool((~words & ~special).any())


def _figures(pairs: Sequence[MinimalPair], right: np.ndarray, end: str, seed: int) -> list[Figure]:
    """Return the accuracy of each paradigm, of each phenomenon (mean over paradigms), and the mean of all."""
    phenomena = {pair.paradigm: pair.phenomenon for pair in pairs}
    # Baseline that prefers the sentence with fewer pieces; a tie counts one half.
    shorter = np.array([(len(pair.good) < len(pair.bad)) + 0.5 * (len(pair.good) == len(pair.bad)) for pair in pairs])
    common = Figure(name="", value=0, n=0, unit="pairs", data=MinimalPairs.reads, seed=seed)
    by_paradigm = {}
    for paradigm, phenomenon in phenomena.items():
        in_paradigm = np.array([pair.paradigm == paradigm for pair in pairs])
        hits, n = int(right[in_paradigm].sum()), int(in_paradigm.sum())
        by_paradigm[paradigm] = replace(
            common, name=f"{PAIRS}{end}", where={"paradigm": paradigm, "phenomenon": phenomenon}, value=hits / n, n=n,
            interval=wilson_interval(hits, n),
            baselines={"guessing": 0.5, "shorter": float(shorter[in_paradigm].mean())},
        )  # fmt: skip
    figures = [*by_paradigm.values()]
    for name in dict.fromkeys(phenomena.values()):
        of = [figure for paradigm, figure in by_paradigm.items() if phenomena[paradigm] == name]
        figures.append(replace(_mean(of), name=f"phenomenon{end}", where={"phenomenon": name}))
    return [*figures, replace(_mean([*by_paradigm.values()]), name=f"{PAIRS}_mean{end}", where={})]


def _mean(figures: Sequence[Figure]) -> Figure:
    """Return the mean accuracy of paradigms; the interval is for sampled pairs of fixed paradigms."""
    k = len(figures)
    value = sum(figure.value for figure in figures) / k
    # The rate of each paradigm is taken a little inward, so that one without errors has a variance, too.
    rates = [((figure.value * figure.n + 1) / (figure.n + 2), figure.n) for figure in figures]
    error = sum(rate * (1 - rate) / n for rate, n in rates) ** 0.5 / k
    interval = max(0.0, value - DEVIATIONS * error), min(1.0, value + DEVIATIONS * error)
    baselines = {name: sum(figure.baselines[name] for figure in figures) / k for name in figures[0].baselines}
    return replace(
        figures[0], value=value, n=sum(figure.n for figure in figures), interval=interval, baselines=baselines
    )
