"""Knowledge of facts, and its consistency under paraphrase: ParaRel (Elazar et al. 2021).

The object of a fact is masked in each of several patterns; the most probable of the relation's objects is the answer.
Accuracy uses the first pattern. Consistency is the fraction of pairs of patterns with the same answer, right or wrong.
Both combined: the fraction of facts that are right with every pattern. Overall figures are means over relations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from osbert.evaluation.bootstrap import bootstrap_interval, wilson_interval
from osbert.reports.charts import IntervalRow, interval_plot
from osbert.reports.page import Section, table
from osbert.reports.plot import explain_picture
from osbert_lab.analysis.figures import Figure, select_figures
from osbert_lab.analysis.judgements import FactRelation, lay_out_pieces
from osbert_lab.analysis.kinds.contract import Advance, LanguageExperiment
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.sample import ItemSample

MAJORITY, GUESSING = "most frequent object", "guessing"
NAMES = ("facts", "facts_consistent", "facts_always_right")
"""Names of the figures: accuracy, consistency, right with every pattern."""


class Facts(LanguageExperiment):
    """The answers of a masked language model to facts in several wordings."""

    reads = "facts"
    position = 43

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why the model cannot fill masks; "" if it can."""
        if model.language and model.language.causal:
            return "a left-to-right model fills no mask in the middle of a sentence"
        return super().obstacle(model)

    def measure(self, model: AnalysedModel, sample: ItemSample[FactRelation], advance: Advance) -> list[Figure]:
        """Return the three figures of each relation, and their means."""
        assert model.language is not None
        figures = []
        for relation in sample.items:
            examples = [
                lay_out_pieces(sentence, model.packer) for _, sentences in relation.facts for sentence in sentences
            ]
            logs = model.language.candidates(examples, np.array(relation.objects))
            answers = logs.argmax(-1).reshape(len(relation.facts), -1)  # (facts, patterns)
            figures += _figures(relation, answers, model.seed)
            advance(sum(map(len, examples)))
        return [*figures, *(_mean(select_figures(figures, name)) for name in NAMES if select_figures(figures, name))]

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the accuracy of each relation beside the most frequent object, and a table of all three."""
        relations = sorted(
            (figure for figure in select_figures(figures, "facts") if figure.where), key=lambda figure: -figure.value
        )
        means = {figure.name: figure for figure in figures if not figure.where}
        by = {(figure.name, figure.where.get("relation")): figure for figure in figures}
        accuracy, consistency = means["facts"], means.get("facts_consistent")
        rows = [
            IntervalRow(
                name=str(figure.where["relation"]),
                value=figure.value,
                interval=figure.interval or (figure.value, figure.value),
                note=f"{figure.baselines[MAJORITY]:.0%}",
            )
            for figure in relations
        ]  # fmt: skip
        alike = f" Two ways of asking get the same answer in {consistency.value:.1%}." if consistency else ""
        picture = explain_picture(
            interval_plot(rows, title="Facts that are right, by relation", ends=(0, 1)),
            plain=f"The right object is the likeliest in {accuracy.value:.1%} of facts, the mean over relations; the "
            f"most frequent object of each, which needs no subject, is right in {accuracy.baselines[MAJORITY]:.1%}. It "
            f"stands at the end of each row.{alike}",
            caution="The answer is the likeliest of the relation's own objects, all of one piece, so no figure of the "
            "whole vocabulary. An answer that changes with the wording was not known.",
        )
        head = ["relation", "right", "most frequent object", "guessing", "consistent", "right with every pattern", "n"]
        lines = [
            [
                "mean" if figure is accuracy else str(figure.where["relation"]),
                *(f"{value:.1%}" for value in (figure.value, figure.baselines[MAJORITY], figure.baselines[GUESSING])),
                *(_format_value(by.get((name, figure.where.get("relation")))) for name in NAMES[1:]),
                f"{figure.n:,}",
            ]
            for figure in [*relations, accuracy]
        ]
        return Section(heading="What it knows: facts", parts=[picture, table(lines, head=head)])


def _format_value(figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.value:.1%}"


def _figures(relation: FactRelation, answers: np.ndarray, seed: int) -> list[Figure]:
    """Return the figures of a relation from its answers (facts, patterns)."""
    right = answers == np.array([object_index for object_index, _ in relation.facts])[:, None]
    patterns = answers.shape[1]
    total = sum(relation.counts)
    majority = int(np.argmax(relation.counts))
    baselines = {
        MAJORITY: float(np.mean([object_index == majority for object_index, _ in relation.facts])),
        GUESSING: 1 / len(relation.objects),
    }
    # Ordered pairs of patterns with the same answer, (facts,); each pattern with itself is subtracted.
    alike = (answers[:, :, None] == answers[:, None, :]).sum((1, 2)) - patterns
    values = {"facts": right[:, 0].astype(float)}
    if patterns > 1:
        values["facts_consistent"] = alike / (patterns * (patterns - 1))
        values["facts_always_right"] = right.all(1).astype(float)
    # Two independent guesses from the distribution of objects agree with probability sum p^2.
    object_rates = np.array(relation.counts) / total
    others = {"facts_consistent": {GUESSING: float(np.square(object_rates).sum())}}
    return [
        Figure(
            name=name, where={"relation": relation.name}, value=float(each.mean()), n=len(each), unit="facts",
            interval=_interval(name, each, seed),
            baselines=others.get(name, baselines), data=Facts.reads, seed=seed,
        )
        for name, each in values.items()
    ]  # fmt: skip


def _interval(name: str, each: NDArray[np.float64], seed: int) -> tuple[float, float] | None:
    """Return the Wilson interval of a rate, or for consistency, a mean of fractions, the bootstrap interval."""
    if name != "facts_consistent":
        return wilson_interval(int(each.sum()), len(each))
    return bootstrap_interval(each.tolist(), seed=seed) if len(each) > 1 else None


def _mean(figures: Sequence[Figure]) -> Figure:
    """Return the mean over relations; its interval is for sampled relations (bootstrap)."""
    values = [figure.value for figure in figures]
    baselines = {name: float(np.mean([figure.baselines[name] for figure in figures])) for name in figures[0].baselines}
    interval = bootstrap_interval(values, seed=figures[0].seed) if len(values) > 1 else None
    return replace(
        figures[0], where={}, value=float(np.mean(values)), n=sum(figure.n for figure in figures), interval=interval,
        baselines=baselines,
    )  # fmt: skip
