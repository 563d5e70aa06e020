"""Heads and dependency relations: how often a head's strongest attention falls on a word's syntactic head.

Clark et al. 2019, section 4: attention by word is the sum over a word's pieces as keys and the mean over its pieces as
queries. The word itself, [CLS] and [SEP] are excluded; the word with the most attention is the prediction. Both
directions count: from a dependent to its head, and from a head to its dependent (the transposed attention, by column).

Unlike there, the head of a relation is chosen and scored on different trees: the best of hundreds of heads looks too
good on the sentences that it was chosen on. The best fixed offset from -5 to 5, and the best head of a model with
random weights, are chosen and scored in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.evaluation.bootstrap import wilson_interval
from osbert.models.contract import Sizes
from osbert.reports.charts import IntervalRow, interval_plot
from osbert.reports.page import Section, paragraph, table
from osbert.reports.plot import explain_picture
from osbert_lab.analysis.figures import Figure, select_figures
from osbert_lab.analysis.kinds.contract import Analysis, PlacedTree, TextPass

OFFSETS = tuple(offset for offset in range(-5, 6) if offset)
DIRECTIONS = ("dependent to head", "head to dependent")
SKIPPED = ("root", "punct")
"""Skipped labels: "root" has no second word, "punct" is about punctuation."""
ALL = "all"
OFFSET, CHOSEN, RANDOM = "offset", "on the trees it was chosen on", "random encoder"
"""The baselines of a relation."""
SHOWN = 20
"""Number of relations in the picture, the most frequent ones; the table has all."""
LEAST = 10
"""Fewest dependents, to choose on and to score, for a figure of a relation."""

Counts = NDArray[np.int64]


def by_word(weights: Tensor, tokens: Tensor) -> Tensor:
    """Return attention by word (H, W, W) from that by token (H, T, T). `tokens` (W, T): 1 for the pieces of a word.

    A row sums to 1 minus the attention to special pieces.
    """
    queries = tokens / tokens.sum(-1, keepdim=True)
    return queries @ weights @ tokens.T


def predict_heads(words: Tensor) -> Tensor:
    """Return the word (2, H, W) that each head predicts as the head of each word, in both directions."""
    # -1 is below every weight, so a word never predicts itself.
    words = words.masked_fill(torch.eye(words.shape[-1], dtype=torch.bool, device=words.device), -1)
    # Rows: from the dependent to its head. Columns: the word that attends most to the dependent.
    return torch.stack([words.argmax(-1), words.argmax(-2)])


class _Tally:
    """Hits of each of some predictors, by relation."""

    def __init__(self) -> None:
        self.hits: dict[str, Counts] = {}

    def add(self, right: NDArray[np.bool_], relations: Sequence[str]) -> None:
        """Add whether predictors are right (..., W) about words with these relations."""
        for relation in {*relations} - {*SKIPPED}:
            which = [word_relation == relation for word_relation in relations]
            hits = right[..., which].sum(-1).astype(np.int64)
            for name in (relation, ALL):
                self.hits[name] = self.hits.get(name, np.zeros_like(hits)) + hits


class Relations(Analysis):
    """The accuracy of each head for each relation, with trees to choose heads on and trees to score."""

    reads = "trees"
    least = f"a relation with {LEAST} dependents, in the trees to choose heads on and in those to score"
    position = 3

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Start with no tree."""
        super().__init__(sizes, seed)
        self.tallies = {
            (kind, part): _Tally() for kind in ("heads", "offset", "random") for part in ("select", "score")
        }
        self.counts: dict[str, dict[str, int]] = {"select": {}, "score": {}}

    def add(self, text: TextPass) -> None:
        """Add the hits of heads and offsets on the words of a tree."""
        placed = text.tree
        assert placed is not None
        heads, part = np.array(placed.tree.heads), placed.part
        relations = [
            "root" if head < 0 else name for head, name in zip(placed.tree.heads, placed.tree.relations, strict=True)
        ]
        self.tallies["heads", part].add(_right(text.attention, placed, heads), relations)
        if text.random:
            self.tallies["random", part].add(_right(text.random, placed, heads), relations)
        near = np.arange(len(heads)) + np.array(OFFSETS)[:, None]  # (offsets, W)
        self.tallies["offset", part].add(near == heads, relations)
        counts = self.counts[part]
        for relation in relations:
            if relation not in SKIPPED:
                counts[relation] = counts.get(relation, 0) + 1
                counts[ALL] = counts.get(ALL, 0) + 1

    def figures(self) -> list[Figure]:
        """Return the accuracy of the best head of each relation, most frequent first, and of one head for all.

        `where` has the head, its direction and the best offset.
        """
        scored = self.counts["score"]
        names = sorted(scored, key=lambda name: (name != ALL, -scored[name], name))
        return [self._figure(name) for name in names if min(scored[name], self.counts["select"].get(name, 0)) >= LEAST]

    def _figure(self, relation: str) -> Figure:
        n = self.counts["score"][relation]
        (layer, direction, head), hits = self._best("heads", relation)
        (offset,), near = self._best("offset", relation)
        chosen = self.tallies["heads", "select"].hits[relation][layer, direction, head]
        baselines = {
            OFFSET: near / n,
            CHOSEN: float(chosen) / self.counts["select"][relation],
        }
        if self.tallies["random", "score"].hits:
            baselines[RANDOM] = self._best("random", relation)[1] / n
        return Figure(
            name="relation",
            where={
                "relation": relation,
                "layer": layer + 1,
                "head": head + 1,
                "direction": DIRECTIONS[direction],
                "offset": OFFSETS[offset],
            },
            value=hits / n,
            n=n,
            unit="dependents",
            interval=wilson_interval(hits, n),
            baselines=baselines,
            data=self.reads,
            seed=self.seed,
        )

    def _best(self, kind: str, relation: str) -> tuple[tuple[int, ...], int]:
        """Return the best predictor of a kind on the "select" part, and its hits on the "score" part."""
        chosen = self.tallies[kind, "select"].hits[relation]
        index = np.unravel_index(int(chosen.argmax()), chosen.shape)
        return tuple(map(int, index)), int(self.tallies[kind, "score"].hits[relation][index])

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the accuracies with their intervals, and the table of heads."""
        accuracies = select_figures(figures, "relation")
        if not accuracies:
            message = f"No relation has {LEAST} dependents, in the trees to choose on and in those to score."
            return Section(heading="What heads know of syntax", parts=[paragraph(message)])
        each = [figure for figure in accuracies if figure.where["relation"] != ALL]
        better = [figure for figure in each if figure.interval and figure.interval[0] > max(_others(figure))]
        best = max(each, key=lambda figure: figure.value - max(_others(figure)), default=accuracies[0])
        plain = (
            f"For {len(better):,} of {len(each):,} relations a head is better than every fixed offset and a model with "
            "fresh weights, even at the lower end of its interval. "
        )
        above = "Furthest above them is" if best.value > max(_others(best)) else "No head is above them; nearest is"
        plain += (
            f"{above} head {best.where['layer']}-{best.where['head']} on {best.where['relation']}: right about "
            f"{best.value:.0%} of {best.n:,}, the best offset about {best.baselines['offset']:.0%}."
        )
        caution = (
            "Each head was chosen on other trees than these. The relations are those of the file: Universal "
            "Dependencies make content words heads, so that figures for case, cop and aux do not compare with papers "
            "on Stanford Dependencies."
        )
        rows = [
            IntervalRow(
                name=str(figure.where["relation"]), value=figure.value, interval=figure.interval or (np.nan, np.nan),
                note=f"{figure.n:,}",
            )
            for figure in accuracies[:SHOWN]
        ]  # fmt: skip
        plot = interval_plot(
            rows, title="Accuracy of the head of each frequent relation, 95% intervals (Wilson)", ends=(0, 1)
        )
        head = ("relation", "n", "head", "direction", "accuracy", "95% interval", "best offset", "random encoder")
        listed = table([_row(figure) for figure in accuracies], head=head)
        return Section(
            heading="What heads know of syntax", parts=[explain_picture(plot, plain=plain, caution=caution), listed]
        )


def _right(attention: Sequence[Tensor], placed: PlacedTree, heads: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each head is right about each word (L, 2, H, W)."""
    hits = []
    for weights in attention:
        tokens = torch.from_numpy(placed.tokens).to(weights)
        hits.append(predict_heads(by_word(weights, tokens)).cpu().numpy() == heads)
    return np.array(hits)


def _others(figure: Figure) -> list[float]:
    return [value for name, value in figure.baselines.items() if name in (OFFSET, RANDOM)]


def _row(figure: Figure) -> list[str]:
    low, high = figure.interval or (np.nan, np.nan)
    random = figure.baselines.get(RANDOM)
    return [
        str(figure.where["relation"]),
        f"{figure.n:,}",
        f"{figure.where['layer']}-{figure.where['head']}",
        str(figure.where["direction"]),
        f"{figure.value:.1%}",
        f"{low:.1%} to {high:.1%}",
        f"{figure.where['offset']:+d}: {figure.baselines['offset']:.1%}",
        "" if random is None else f"{random:.1%}",
    ]
