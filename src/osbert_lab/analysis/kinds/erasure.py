"""Whether the model uses what a probe finds: the loss of masked pieces after a label is erased from a layer.

The labels are parts of speech and relations to the head. In one layer at a time, the states of all words lose what a
linear probe could read of a label (LEACE, Belrose et al. 2023), and the layers above continue from there. The baseline
removes as many random directions of the whitened states (amnesic probing, Elazar et al. 2021). Erasers are fitted on
other sentences than those of the loss, with the same kind of masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch, micro_batches
from osbert.data.example import Example
from osbert.evaluation.forward import TOKENS, evaluating
from osbert.reports.page import Section
from osbert.reports.plot import Mark, Series, explain_picture, line_plot
from osbert_lab.analysis.erasure import Eraser, LabelledMoments
from osbert_lab.analysis.figures import DEVIATIONS, Figure, Floats, select_figures
from osbert_lab.analysis.hooks import Change, change_states
from osbert_lab.analysis.kinds.contract import Advance, Experiment
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.predicted_part import with_predicted_part
from osbert_lab.analysis.sample import TextSample
from osbert_lab.analysis.tree_files import Tree

TREES = {"select": 1000, "score": 250}
"""Most trees to fit erasers on, and to measure the loss on, which takes two passes for each layer."""
MASKED = 0.15
"""Fraction of a sentence's pieces that are masked, at least one."""
LEAST = 200
"""Fewest masked pieces for a figure."""
NOTHING = -1
"""The label number of tokens outside words."""
RANDOM, BEFORE = "random directions", "loss before"

LABELS: Mapping[str, Callable[[Tree], Sequence[str]]] = {
    "part of speech": lambda tree: tree.tags,
    "relation to the head": lambda tree: tree.relations,
}
"""The labels to erase, one at a time: functions from a tree to its words' labels, _ for none."""


@dataclass(frozen=True)
class _MaskedTree:
    """A masked sentence, and for each label the number (T,) of the value that each token's word has."""

    example: Example
    labels: Mapping[str, NDArray[np.int64]]


class Erasure(Experiment):
    """The rise of the loss of masked pieces after an erasure, for each label and layer."""

    reads = "trees"
    needs_attention = False
    least = f"trees to fit on, with two labels or more, and {LEAST} masked pieces in those to score"
    position = 15

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why there is no loss of masked pieces; "" if there is."""
        return "" if model.masks else "the model does not predict masked pieces"

    def work(self, model: AnalysedModel, sample: TextSample) -> int:
        """Return an estimate of the tokens read: the trees drawn have about as many tokens as the others."""
        parts = [placed.part for placed in sample.trees]
        drawn = {part: min(most, sum(tree_part == part for tree_part in parts)) for part, most in TREES.items()}
        # Before an erasure, and after one of each label and of as many random directions in each layer.
        passes = {"select": 1, "score": 1 + 2 * len(LABELS) * len(model.backbone.stack)}
        return sum(drawn[part] * passes[part] for part in TREES) * sample.tokens // max(1, len(sample))

    def measure(self, model: AnalysedModel, sample: TextSample, advance: Advance) -> list[Figure]:
        """Return the cost of each erasure in nats per masked piece; [] for too few pieces or a single label value."""
        training = [placed.tree for placed in sample.trees if placed.part == "select"]
        values = {label: {value for tree in training for value in read(tree)} - {"_"} for label, read in LABELS.items()}
        names = {label: sorted(label_values) for label, label_values in values.items() if len(label_values) > 1}
        parts = {part: _mask_trees(model, sample, part, names) for part in TREES}
        count = (
            sum(len(tree.example.targets[model.masks.target].labels) for tree in parts["score"]) if model.masks else 0
        )
        if count < LEAST or not names or not parts["select"]:
            return []
        moments = _moments(model, parts["select"], names, advance)
        before = _losses(model, parts["score"], None, advance)
        return [
            self._cost(model, parts["score"], before, (label, layer, layer_moments), advance)
            for label in names
            for layer, layer_moments in enumerate(moments[label])
        ]

    def _cost(
        self,
        model: AnalysedModel,
        trees: Sequence[_MaskedTree],
        before: Floats,
        erased: tuple[str, int, LabelledMoments],
        advance: Advance,
    ) -> Figure:
        """Return the cost of erasing a label in a layer. `before`: the losses (n,) without erasure."""
        label, layer, moments = erased
        eraser = moments.eraser()
        random = moments.random_eraser(eraser.rank, np.random.default_rng([model.seed, layer]))
        # The losses are paired by masked piece, so the interval is that of their differences.
        after, beside = (_losses(model, trees, (label, layer, each), advance) for each in (eraser, random))
        cost = after - before
        margin = DEVIATIONS * float(cost.std(ddof=1)) / math.sqrt(len(cost))
        return Figure(
            name="erasure_cost",
            where={"label": label, "layer": layer, "directions": eraser.rank},
            value=float(cost.mean()),
            n=len(cost),
            unit="masked pieces",
            interval=(float(cost.mean()) - margin, float(cost.mean()) + margin),
            baselines={RANDOM: float((beside - before).mean()), BEFORE: float(before.mean())},
            data=self.reads,
            seed=model.seed,
        )

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the costs of the erasure and of random directions, by layer."""
        costs = select_figures(figures, "erasure_cost")
        labels = [label for label in LABELS if any(figure.where["label"] == label for figure in costs)]
        groups = {label: [figure for figure in costs if figure.where["label"] == label] for label in labels}
        curves = [
            (
                name,
                [
                    (float(figure.where["layer"]), figure.baselines[RANDOM] if random else figure.value)
                    for figure in some
                ],
            )
            for label, some in groups.items()
            for random, name in ((False, label), (True, f"as many {RANDOM}"))
        ]
        plot = line_plot(
            [Series(name=name, points=points, color=color) for color, (name, points) in enumerate(curves)],
            marks=[Mark(value=0, label="nothing erased")],
            title="Nats that a masked piece costs more after an erasure, by layer",
            across="layer (0: embeddings)",
        )
        plain = " ".join(_worst(label, some) for label, some in groups.items())
        plain += " Where both cost the same, the model does not need what the probe finds."
        caution = (
            "Only what a linear probe reads is erased, and only in one layer: layers above may find the label "
            "anew in other words. The random directions are as many, and need not vary as much."
        )
        heading = "Whether what probes find is used"
        return Section(heading=heading, parts=[explain_picture(plot, plain=plain, caution=caution)])


def _worst(label: str, figures: Sequence[Figure]) -> str:
    """Describe in which layer the erasure costs most above that of random directions."""
    worst = max(figures, key=lambda figure: figure.value - figure.baselines[RANDOM])
    low, high = worst.interval or (worst.value, worst.value)
    return (
        f"Without the {label} in layer {worst.where['layer']} a masked piece costs {worst.value:.2f} nats more "
        f"({low:.2f} to {high:.2f}; {worst.baselines[BEFORE]:.2f} before), without as many random directions "
        f"{worst.baselines[RANDOM]:.2f}."
    )


def _mask_trees(
    model: AnalysedModel, sample: TextSample, part: str, names: Mapping[str, Sequence[str]]
) -> list[_MaskedTree]:
    """Return a sample of masked trees of a part, always the same. `names`: the values of each label."""
    assert model.masks is not None
    numbers = {
        label: {name: number for number, name in enumerate(label_values)} for label, label_values in names.items()
    }
    # "select" and "score" differ in length, which gives each part its own stream.
    rng = np.random.default_rng([model.seed, len(part)])
    chosen = [number for number, placed in enumerate(sample.trees) if placed.part == part]
    drawn = sorted(rng.permutation(chosen)[: TREES[part]].tolist())
    masked_trees: list[_MaskedTree] = []
    for number in drawn:
        placed = sample.trees[number]
        # argmax over the words of a 0/1 column is the word of the token; all-zero columns are special pieces.
        words = np.where(placed.tokens.any(0), placed.tokens.argmax(0), NOTHING)  # (T,)
        labels = {
            # The appended element is what index -1 (no word) picks.
            label: np.array([value_numbers.get(name, NOTHING) for name in LABELS[label](placed.tree)] + [NOTHING])[
                words
            ]
            for label, value_numbers in numbers.items()
        }
        masked = with_predicted_part(
            sample.examples[number], model.masks.target, MASKED, rng, mask=model.packer.tokenizer.mask
        )
        assert masked is not None, "a tree has words"
        masked_trees.append(_MaskedTree(replace(masked, record=len(masked_trees)), labels))
    return masked_trees


def _batches(trees: Sequence[_MaskedTree]) -> Iterator[tuple[Batch, dict[str, Tensor]]]:
    """Yield batches of trees, and for each label its number (N,) for each token."""
    for batch in micro_batches([tree.example for tree in trees], TOKENS):
        rows = [trees[record].labels for record in batch.records.tolist()]
        yield batch, {label: torch.from_numpy(np.concatenate([row[label] for row in rows])) for label in rows[0]}


def _moments(
    model: AnalysedModel, trees: Sequence[_MaskedTree], names: Mapping[str, Sequence[str]], advance: Advance
) -> dict[str, list[LabelledMoments]]:
    """Return the moments of the words' states for each label and layer, from one pass for all labels."""
    width = model.backbone.architecture.width
    moments = {
        label: [LabelledMoments(width, len(label_values)) for _ in model.backbone.stack]
        for label, label_values in names.items()
    }

    def record_states(layer: int, labels: Mapping[str, Tensor]) -> Change:
        def note(values: Tensor) -> Tensor:
            states = values.float().cpu().numpy()
            for label, numbers in labels.items():
                has_label = numbers != NOTHING
                moments[label][layer].add(states[has_label.numpy()], numbers[has_label].numpy())
            return values

        return note

    changes: dict[int, Change] = {}
    changed = change_states(model.learner, changes)
    for batch, labels in _batches(trees):
        changes.update({layer: record_states(layer, labels) for layer in range(len(model.backbone.stack))})
        with evaluating(changed) as device:
            changed.states(batch.to(device))
        advance(batch.tokens)
    return moments


def _losses(
    model: AnalysedModel, trees: Sequence[_MaskedTree], erased: tuple[str, int, Eraser] | None, advance: Advance
) -> Floats:
    """Return the loss of each masked piece in nats. `erased`: (label, layer, eraser), None for no erasure."""
    assert model.masks is not None
    losses: list[Floats] = []

    def without(eraser: Eraser, words: Tensor) -> Change:
        return lambda values: torch.where(words.to(values.device)[:, None], eraser.apply(values), values)

    changes: dict[int, Change] = {}
    changed = change_states(model.learner, changes)
    for batch, labels in _batches(trees):
        if erased:
            changes[erased[1]] = without(erased[2], labels[erased[0]] != NOTHING)
        with evaluating(changed) as device:
            device_batch = batch.to(device)
            scores = model.masks.outputs(changed.states(device_batch), device_batch).float()
            gold = device_batch.targets[model.masks.target].labels
            losses.append(functional.cross_entropy(scores, gold, reduction="none").double().cpu().numpy())
        advance(batch.tokens)
    return np.concatenate(losses)
