"""What a model's heads look at, beside Clark et al. 2019, "What Does BERT Look At?" (BERT BASE, uncased).

The published figures are those of the authors' own run, Syntax_Analysis.ipynb of their repository
(github.com/clarkkev/attention-analysis), which counts layers and heads from 0; here both count from 1. A relation has a
published figure only if it means nearly the same in Stanford dependencies (theirs) and in Universal Dependencies
(ours). Other figures of the paper are not printed, since they were not checked in its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from osbert.reports.page import Section, paragraph, table
from osbert.terminal import in_columns
from osbert_lab.analysis.figures import Figure, Floats, select_figures
from osbert_lab.analysis.kinds.coreference import NEAREST, RANDOM, SAME, Coreference
from osbert_lab.analysis.kinds.heads import ENTROPIES, NAMES, STRONG, UNIFORM, Heads
from osbert_lab.analysis.kinds.relations import CHOSEN, OFFSET, Relations
from osbert_lab.analysis.model_analysis import ModelAnalysis
from osbert_lab.papers.analysis_runs import AnalysisPlan, PaperComparison

PUBLISHED = {
    "det": ("det", "8-11", 94.3, "+1: 51.7"),
    "obj": ("dobj", "8-10", 86.8, "-2: 40.0"),
    "nsubj": ("nsubj", "8-2", 58.5, "+1: 45.5"),
    "amod": ("amod", "4-10", 75.6, "+1: 68.3"),
    "nmod:poss": ("poss", "7-6", 80.5, "+1: 47.7"),
    "compound:prt": ("prt", "6-7", 99.1, "-1: 91.4"),
    "mark": ("mark", "8-2", 50.7, "+2: 14.5"),
}
"""For each of our relations: the relation of the paper, the accuracy in per cent of its best head (of 144), and the
best fixed offset."""
THEIRS = (
    "Published: BERT BASE on the Wall Street Journal (1,696 sentences, Stanford dependencies). There the best of 144 "
    "heads in two directions is chosen and scored on the same sentences, as in the column 'where chosen'; 'right' is "
    "on other trees. Another model, other text and other trees: only the pattern compares. Universal Dependencies "
    "also call the 'to' of an infinitive mark."
)
LINKED = "The paper's figures on coreference, of CoNLL-2012, are not printed: they were not checked in its source."
RELATION_HEAD = (
    "relation", "n", "head", "right", "95% interval", "where chosen", "offset", "random encoder",
    "published as", "head", "right", "offset",
)  # fmt: skip
LINK_HEAD = ("mentions", "n", "head", "right", "95% interval", NEAREST, SAME, RANDOM)
ENTROPY_HEAD = ("layer", "entropy", "narrowest head", "broadest head", "from [CLS]", "ln n")

Rows = list[list[str]]


class AttentionPlan(AnalysisPlan):
    """Statistics of heads on text; heads scored against relations and coreference if the data has them."""

    title: ClassVar[str] = "What heads look at (Clark et al. 2019)"
    kinds: ClassVar[Sequence[str]] = ("heads", "relations", "coreference")
    needed: ClassVar[str] = "attention: it reads text, trees (.conllu) or coreference"

    def compare_with_paper(self, analysis: ModelAnalysis) -> PaperComparison | None:
        """Return tables of entropy, of attention by layer, of relations beside the paper's, and of coreference."""
        heads, relations, links = (analysis.figures.get(name, ()) for name in self.kinds)
        if not heads and not relations and not links:
            return None
        blocks = [
            ("Entropy of attention, nats", ENTROPY_HEAD, entropy_rows(heads), entropy_sentences(heads)),
            ("Parts of attention, means of the heads", _part_head(heads), part_rows(heads), strong_sentences(heads)),
            ("Heads against relations", RELATION_HEAD, relation_rows(relations), [THEIRS]),
            ("Heads against coreference", LINK_HEAD, link_rows(links), [LINKED]),
        ]
        lines: list[str] = []
        sections: list[Section] = []
        for heading, head, rows, sentences in blocks:
            if rows:
                remarks = [*sentences]
                lines += ["", heading, *in_columns([[*head], *rows], indent=""), *remarks]
                sections.append(Section(heading=heading, parts=[table(rows, head=head), *map(paragraph, remarks)]))
        # The sections of the analysis itself, behind the comparison.
        pictures = [
            kind.section(figures)
            for kind, figures in ((Heads, heads), (Relations, relations), (Coreference, links))
            if figures
        ]
        return PaperComparison(results=_results(analysis), lines=lines[1:], sections=[*sections, *pictures])


def _results(analysis: ModelAnalysis) -> dict[str, Any]:
    """Return the figures for layers, relations and mentions; analysis.json also has those of each head."""
    figures = {name: list(analysis.figures.get(name, ())) for name in AttentionPlan.kinds}
    # Figures of single heads name their head; those of layers do not.
    figures["heads"] = [figure for figure in figures["heads"] if "head" not in figure.where]
    published = {
        name: {"relation": published_name, "head": head, "right": right, "offset": offset}
        for name, (published_name, head, right, offset) in PUBLISHED.items()
    }
    return {**{name: [figure.record() for figure in some] for name, some in figures.items()}, "published": published}


def _layers(heads: Sequence[Figure], name: str) -> dict[int, Figure]:
    return {int(figure.where["layer"]): figure for figure in select_figures(heads, f"layer_{name}")}


def entropy_rows(heads: Sequence[Figure]) -> Rows:
    """Return rows with the mean entropy of each layer, of its narrowest and broadest head, and of uniform attention."""
    whole, beginning = ENTROPIES
    of_first = _layers(heads, beginning)
    rows = []
    for layer, figure in _layers(heads, whole).items():
        each = [head.value for head in select_figures(heads, whole) if head.where["layer"] == layer]
        first = f"{of_first[layer].value:.2f}" if layer in of_first else "-"
        ends = [f"{min(each):.2f}", f"{max(each):.2f}"]
        rows.append([str(layer), f"{figure.value:.2f}", *ends, first, f"{figure.baselines[UNIFORM]:.2f}"])
    return rows


def entropy_sentences(heads: Sequence[Figure]) -> Iterator[str]:
    """Yield whether the entropy falls to a minimum in a middle layer and then rises, as in Clark et al."""
    # One value per layer, in the order of layers.
    values: Floats = np.array([figure.value for figure in _layers(heads, ENTROPIES[0]).values()])
    low, last = int(values.argmin()), len(values) - 1
    lowest = f"{values[low]:.2f} nats in layer {low + 1}"
    if 0 < low < last:
        yield (
            f"It falls from {values[0]:.2f} nats in layer 1 to {lowest}, and rises to {values[-1]:.2f} in layer "
            f"{last + 1}; in section 3.3 of the paper BERT BASE is lowest in its middle layers."
        )
    else:
        yield f"It is lowest at an end, {lowest}: not as section 3.3 of the paper draws it for BERT BASE."


def _parts(heads: Sequence[Figure]) -> list[str]:
    """Return the targets of attention that were measured: a tokenizer may have no [CLS] or [SEP]."""
    return [name for name in NAMES if any(figure.value > 0 for figure in select_figures(heads, f"layer_{name}"))]


def _part_head(heads: Sequence[Figure]) -> list[str]:
    return ["layer", *(NAMES[name] for name in _parts(heads))]


def part_rows(heads: Sequence[Figure]) -> Rows:
    """Return rows with the fraction of each layer's attention per target, and that of uniform attention."""
    columns = [_layers(heads, name) for name in _parts(heads)]
    if not columns:
        return []
    rows = [
        [str(layer), *(f"{column[layer].value:.1%}" if layer in column else "-" for column in columns)]
        for layer in columns[0]
    ]
    return [*rows, ["even", *(f"{next(iter(column.values())).baselines[UNIFORM]:.1%}" for column in columns)]]


def strong_sentences(heads: Sequence[Figure]) -> Iterator[str]:
    """Yield a sentence on the heads that give over half of their attention to one target."""
    for name in _parts(heads):
        strong = [
            f"{_head(figure)} ({figure.value:.0%})" for figure in select_figures(heads, name) if figure.value > STRONG
        ]
        if strong:
            yield f"Over half to {NAMES[name]}: {', '.join(strong)}."


def relation_rows(relations: Sequence[Figure]) -> Rows:
    """Return rows for the relations with a published figure, ours and theirs."""
    figures_by_relation = {str(figure.where["relation"]): figure for figure in relations}
    rows = []
    for name, (published_name, head, right, offset) in PUBLISHED.items():
        # A relation that is rare in the data has no figure.
        if figure := figures_by_relation.get(name):
            low, high = figure.interval or (np.nan, np.nan)
            near = f"{figure.where['offset']:+d}: {100 * figure.baselines[OFFSET]:.1f}"
            chosen, random = 100 * figure.baselines[CHOSEN], figure.baselines.get(RANDOM)
            rows.append(
                [
                    name, f"{figure.n:,}", _head(figure), f"{100 * figure.value:.1f}",
                    f"{100 * low:.1f} to {100 * high:.1f}",
                    f"{chosen:.1f}", near, "-" if random is None else f"{100 * random:.1f}",
                    published_name, head, f"{right:.1f}", offset,
                ]
            )  # fmt: skip
    return rows


def link_rows(links: Sequence[Figure]) -> Rows:
    """Return rows with the best head's accuracy on mentions of each kind, beside baselines without a model."""
    return [
        [
            str(figure.where["mentions"]), f"{figure.n:,}", _head(figure), f"{figure.value:.1%}",
            " to ".join(f"{end:.1%}" for end in figure.interval or ()),
            *(f"{figure.baselines[name]:.1%}" if name in figure.baselines else "-" for name in (NEAREST, SAME, RANDOM)),
        ]
        for figure in select_figures(links, "coreference")
    ]  # fmt: skip


def _head(figure: Figure) -> str:
    return f"{figure.where['layer']}-{figure.where['head']}"
