"""Heads and coreference: how often a head's strongest attention to another mention falls on a coreferent one.

Clark et al. 2019, section 4.3: among the head words of the earlier mentions, the one with the most attention from the
head word of a mention is the head's answer; it is correct if both corefer. For an ambiguous pronoun (GAP, Webster et
al. 2018) the two names are the candidates. Unlike there, a head is chosen and scored on different documents, and so is
the best head of a model with random weights. Other baselines: the nearest mention, and the nearest one with the same
head word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.data.batch import collate
from osbert.evaluation.bootstrap import wilson_interval
from osbert.evaluation.forward import evaluating
from osbert.models.contract import Backbone
from osbert.reports.charts import IntervalRow, interval_plot
from osbert.reports.page import Section, paragraph, table
from osbert.reports.plot import explain_picture
from osbert_lab.analysis.coreference_files import MentionLink
from osbert_lab.analysis.figures import Figure, select_figures
from osbert_lab.analysis.kinds.contract import Advance, Experiment
from osbert_lab.analysis.kinds.relations import by_word
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.passes import fresh
from osbert_lab.analysis.sample import ItemSample, LinkedItem

ALL = "all mentions"
ORDER = (ALL, "pronouns", "names", "nouns", "ambiguous pronouns")
NEAREST, SAME, RANDOM, FLATTERED = (
    "nearest mention",
    "same head word",
    "random encoder",
    "on the texts it was chosen on",
)
LEAST = 20
"""Fewest mentions, to choose on and to score, for a figure."""

Answers = Callable[[Sequence[MentionLink]], NDArray[np.bool_]]
Hits = NDArray[np.int64]


def answers(words: Tensor, links: Sequence[MentionLink]) -> NDArray[np.bool_]:
    """Return whether each head is right about each link (n, H), from attention by word (H, W, W)."""
    link_hits = []
    for link in links:
        candidates = torch.tensor(link.candidates, device=words.device)
        # The row of the mention restricted to its candidates (H, candidates); argmax gives one answer per head.
        chosen = candidates[words[:, link.mention].index_select(-1, candidates).argmax(-1)]
        link_hits.append([int(candidate) in link.right for candidate in chosen.tolist()])
    return np.array(link_hits, bool)


def nearest(link: MentionLink) -> int:
    """Return the nearest candidate in words; of two equally near ones, the earlier."""
    return min(link.candidates, key=lambda candidate: (abs(candidate - link.mention), candidate > link.mention))


def same_word(words: Sequence[str], link: MentionLink) -> int | None:
    """Return the nearest candidate that is the same word (case ignored), None if there is none."""
    mention_word = words[link.mention].lower()
    return next(
        (candidate for candidate in reversed(link.candidates) if words[candidate].lower() == mention_word), None
    )


class Coreference(Experiment):
    """The accuracy of each head for mentions of each kind."""

    reads = "coreference"
    position = 4

    def work(self, model: AnalysedModel, sample: ItemSample[LinkedItem]) -> int:
        """Return twice the tokens of all texts: the model and one with random weights read them."""
        return 2 * sample.tokens

    def measure(self, model: AnalysedModel, sample: ItemSample[LinkedItem], advance: Advance) -> list[Figure]:
        """Count the correct links of each head, then choose a head for each kind of mention."""
        tallies: dict[tuple[str, str, str], Hits] = {}
        counts: dict[tuple[str, str], int] = {}
        with evaluating(model.backbone):
            for item, hits in self._hits(model, sample, advance):
                kinds = [link.kind for link in item.text.links]
                # Ambiguous pronouns of GAP have a figure of their own and are not part of "all mentions".
                for kind in {*kinds, *([ALL] if kinds[0] != ORDER[-1] else [])}:
                    which = [kind in (ALL, link_kind) for link_kind in kinds]
                    counts[kind, item.part] = counts.get((kind, item.part), 0) + sum(which)
                    for name, right in hits.items():
                        key = kind, item.part, name
                        tallies[key] = tallies.get(key, np.int64(0)) + right[which].sum(0)
        due = [kind for kind in ORDER if min(counts.get((kind, part), 0) for part in ("select", "score")) >= LEAST]
        return [_figure(kind, tallies, counts, model.seed) for kind in due]

    def _hits(
        self, model: AnalysedModel, sample: ItemSample[LinkedItem], advance: Advance
    ) -> Iterator[tuple[LinkedItem, dict[str, NDArray[np.bool_]]]]:
        """Yield each text with whether each answer is right about its links, (n, ...) by answer."""
        random = fresh(model.backbone, model.seed)
        for item in sample.items:
            words, links = item.text.words, item.text.links
            example, tokens = item.lay_out(model.packer)
            batch = collate([example]).to(next(model.backbone.parameters()).device)
            pieces = torch.from_numpy(tokens).to(batch.ids.device)

            def by_heads(backbone: Backbone) -> NDArray[np.bool_]:
                layers = [
                    answers(by_word(weights, pieces.to(weights)), links)  # noqa: B023
                    for (weights,) in backbone.weights(batch)  # noqa: B023
                ]
                return np.stack(layers, axis=1)  # (n, L, H)

            yield (
                item,
                {
                    "heads": by_heads(model.backbone),
                    RANDOM: by_heads(random),
                    NEAREST: np.array([nearest(link) in link.right for link in links]),
                    SAME: np.array([same_word(words, link) in link.right for link in links]),
                },
            )
            advance(2 * len(example))

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the accuracies with their intervals, and the table of heads."""
        heading = "What heads know of coreference"
        accuracies = select_figures(figures, "coreference")
        if not accuracies:
            return Section(heading=heading, parts=[paragraph(f"There are fewer than {LEAST} mentions in a part.")])
        best = max(accuracies, key=lambda figure: figure.value - max(_others(figure)))
        above = best.interval is not None and best.interval[0] > max(_others(best))
        plain = (
            f"Head {_head(best)} is right about {best.value:.0%} of {best.n:,} {best.where['mentions']}, the best "
            f"other answer ({max(best.baselines, key=lambda name: _baseline_value(best, name))}) about "
            f"{max(_others(best)):.0%}: "
            + ("better, even at the lower end of its interval." if above else "no head is surely better.")
        )
        caution = (
            "Mentions of one document are not independent, so that the intervals are too narrow. The choice is among "
            "mentions that are marked; the head would not know by itself what is one."
        )
        rows = [
            IntervalRow(
                name=str(figure.where["mentions"]), value=figure.value, interval=figure.interval or (np.nan, np.nan),
                note=f"{figure.n:,}",
            )
            for figure in accuracies
        ]  # fmt: skip
        plot = interval_plot(
            rows, title="Mentions whose antecedent a head attends to most, 95% intervals (Wilson)", ends=(0, 1)
        )
        names = (NEAREST, SAME, RANDOM)
        lines = [
            [
                str(figure.where["mentions"]), f"{figure.n:,}", _head(figure), f"{figure.value:.1%}",
                " to ".join(f"{end:.1%}" for end in figure.interval or ()),
                *(f"{figure.baselines[name]:.1%}" if name in figure.baselines else "" for name in names),
            ]
            for figure in accuracies
        ]  # fmt: skip
        listed = table(lines, head=("mentions", "n", "head", "right", "95% interval", *names))
        return Section(heading=heading, parts=[explain_picture(plot, plain=plain, caution=caution), listed])


def _figure(
    kind: str, tallies: dict[tuple[str, str, str], Hits], counts: dict[tuple[str, str], int], seed: int
) -> Figure:
    n = counts[kind, "score"]
    (layer, head), hits = _best(kind, "heads", tallies)
    rules = (NEAREST,) if kind == ORDER[-1] else (NEAREST, SAME)  # a pronoun is never the word of one of two names
    baselines = {name: float(tallies[kind, "score", name]) / n for name in rules}
    baselines[RANDOM] = _best(kind, RANDOM, tallies)[1] / n
    baselines[FLATTERED] = float(tallies[kind, "select", "heads"].max()) / counts[kind, "select"]
    return Figure(
        name="coreference",
        where={"mentions": kind, "layer": layer + 1, "head": head + 1},
        value=hits / n,
        n=n,
        unit="mentions",
        interval=wilson_interval(hits, n),
        baselines=baselines,
        data="coreference",
        seed=seed,
    )


def _best(kind: str, name: str, tallies: dict[tuple[str, str, str], Hits]) -> tuple[tuple[int, int], int]:
    """Return the head with the most hits on the "select" part, and its hits on the "score" part."""
    chosen = tallies[kind, "select", name]
    layer, head = np.unravel_index(int(chosen.argmax()), chosen.shape)
    return (int(layer), int(head)), int(tallies[kind, "score", name][layer, head])


def _baseline_value(figure: Figure, name: str) -> float:
    return figure.baselines[name] if name != FLATTERED else -1.0


def _others(figure: Figure) -> list[float]:
    return [_baseline_value(figure, name) for name in figure.baselines]


def _head(figure: Figure) -> str:
    return f"{figure.where['layer']}-{figure.where['head']}"
