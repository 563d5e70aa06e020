"""Whether what a probe finds is used: the loss of masked pieces after a label of the words is erased from a layer.

The labels are parts of speech and relations to the head. In one layer at a time the states of all words lose what a
linear probe could read of a label (LEACE, Belrose et al. 2023), and the layers above compute with what is left; beside
it as many random directions are lost, each as likely as the states vary (amnesic probing, Elazar et al. 2021). Erasers
are fitted on other sentences than those of the loss, under the same masks.
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

from osbert.analysis.erasure import Eraser, LabelledMoments
from osbert.analysis.figures import DEVIATIONS, Figure, Floats, named
from osbert.analysis.hooks import Change, changed_states
from osbert.analysis.kinds.contract import Advance, Experiment
from osbert.analysis.model import AnalysedModel
from osbert.analysis.sample import TextSample
from osbert.data.batch import Batch, micro_batches
from osbert.data.example import Example, Target
from osbert.evaluation.forward import TOKENS, evaluating
from osbert.reading.trees import Tree
from osbert.reports.explained import explained
from osbert.reports.page import Section
from osbert.reports.plot import Mark, Series, line_plot

TREES = {"select": 1000, "score": 250}
"""Most trees to fit erasers on, and most to take the loss of, which is done twice for each layer."""
MASKED = 0.15
"""The share of a sentence's pieces that is masked: at least one."""
LEAST = 200
"""Fewer masked pieces than this give no figure."""
NOTHING = -1
"""The label of tokens that are of no word."""
RANDOM, BEFORE = "random directions", "loss before"

LABELS: Mapping[str, Callable[[Tree], Sequence[str]]] = {
    "part of speech": lambda tree: tree.tags,
    "relation to the head": lambda tree: tree.relations,
}
"""What is erased, each by itself: the labels of the words of a tree, _ for none."""


@dataclass(frozen=True)
class _MaskedTree:
    """A sentence with masks, and the number of the label (T,) of each token's word."""

    example: Example
    labels: NDArray[np.int64]


class Erasure(Experiment):
    """The loss of masked pieces before and after a label is erased, for each label and layer."""

    reads = "trees"
    needs_attention = False
    place = 15

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return that a model without a head for masked pieces has no such loss."""
        return "" if model.masks else "the model does not predict masked pieces"

    def work(self, sample: TextSample) -> int:
        """Return about how many tokens are read, of a model of 6 layers."""
        return sum(map(len, sample.examples)) * 4 * len(LABELS)

    def measure(self, model: AnalysedModel, sample: TextSample, advance: Advance) -> list[Figure]:
        """Return what erasing costs in each layer, in nats a masked piece; nothing of too few pieces or one label."""
        return [figure for label in LABELS for figure in self._costs(label, model, sample, advance)]

    def _costs(self, label: str, model: AnalysedModel, sample: TextSample, advance: Advance) -> list[Figure]:
        training = [placed.tree for placed in sample.trees if placed.part == "select"]
        names = sorted({name for tree in training for name in LABELS[label](tree)} - {"_"})
        parts = {part: _masked(model, sample, part, (label, names)) for part in TREES}
        count = sum(len(one.example.targets[model.masks.target].labels) for one in parts["score"]) if model.masks else 0
        if count < LEAST or len(names) < 2 or not parts["select"]:
            return []
        moments = _moments(model, parts["select"], len(names), advance)
        before = _losses(model, parts["score"], {}, advance)
        found: list[Figure] = []
        for layer, one in enumerate(moments):
            eraser = one.eraser()
            random = one.random_eraser(eraser.rank, np.random.default_rng([model.seed, layer]))
            after, beside = (_losses(model, parts["score"], {layer: each}, advance) for each in (eraser, random))
            cost = after - before
            margin = DEVIATIONS * float(cost.std(ddof=1)) / math.sqrt(count)
            found.append(
                Figure(
                    name="erasure_cost",
                    where={"label": label, "layer": layer, "directions": eraser.rank},
                    value=float(cost.mean()),
                    n=count,
                    unit="masked pieces",
                    interval=(float(cost.mean()) - margin, float(cost.mean()) + margin),
                    baselines={RANDOM: float((beside - before).mean()), BEFORE: float(before.mean())},
                    data=self.reads,
                    seed=model.seed,
                )
            )
        return found

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return both losses by layer."""
        found = named(figures, "erasure_cost")
        labels = [label for label in LABELS if any(one.where["label"] == label for one in found)]
        groups = {label: [one for one in found if one.where["label"] == label] for label in labels}
        curves = [
            (name, [(float(one.where["layer"]), one.baselines[RANDOM] if random else one.value) for one in some])
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
        return Section(heading=heading, parts=[explained(plot, plain=plain, caution=caution)])


def _worst(label: str, figures: Sequence[Figure]) -> str:
    """Return in words where a label's erasure costs most above that of random directions."""
    worst = max(figures, key=lambda one: one.value - one.baselines[RANDOM])
    low, high = worst.interval or (worst.value, worst.value)
    return (
        f"Without the {label} in layer {worst.where['layer']} a masked piece costs {worst.value:.2f} nats more "
        f"({low:.2f} to {high:.2f}; {worst.baselines[BEFORE]:.2f} before), without as many random directions "
        f"{worst.baselines[RANDOM]:.2f}."
    )


def _masked(
    model: AnalysedModel, sample: TextSample, part: str, labels: tuple[str, Sequence[str]]
) -> list[_MaskedTree]:
    """Return some trees of a part with masks, always the same ones. `labels`: which label, and its names."""
    assert model.masks is not None
    label, names = labels
    numbers = {name: number for number, name in enumerate(names)}
    rng = np.random.default_rng([model.seed, len(part)])
    chosen = [number for number, placed in enumerate(sample.trees) if placed.part == part]
    drawn = sorted(rng.permutation(chosen)[: TREES[part]].tolist())
    found: list[_MaskedTree] = []
    for number in drawn:
        example, placed = sample.examples[number], sample.trees[number]
        words = np.where(placed.tokens.any(0), placed.tokens.argmax(0), NOTHING)  # (T,)
        own = np.array([numbers.get(name, NOTHING) for name in LABELS[label](placed.tree)] + [NOTHING])[words]
        pieces = np.flatnonzero(~example.special)
        index = np.sort(rng.choice(pieces, max(1, round(MASKED * len(pieces))), replace=False))
        ids = example.ids.copy()
        ids[index] = model.packer.tokenizer.mask
        target = Target(labels=example.ids[index], index=index)
        masked = replace(example, ids=ids, targets={model.masks.target: target}, record=len(found))
        found.append(_MaskedTree(masked, own))
    return found


def _batches(trees: Sequence[_MaskedTree]) -> Iterator[tuple[Batch, Tensor]]:
    """Yield trees in batches, with the label (N,) of each token."""
    for batch in micro_batches([one.example for one in trees], TOKENS):
        labels = np.concatenate([trees[record].labels for record in batch.records.tolist()])
        yield batch, torch.from_numpy(labels)


def _moments(
    model: AnalysedModel, trees: Sequence[_MaskedTree], classes: int, advance: Advance
) -> list[LabelledMoments]:
    """Return the moments of the states of words, and of their labels, in each layer."""
    found = [LabelledMoments(model.backbone.architecture.width, classes) for _ in model.backbone.stack]

    def noted(layer: int, labels: Tensor) -> Change:
        def note(values: Tensor) -> Tensor:
            there = labels != NOTHING
            found[layer].add(values.float().cpu().numpy()[there.numpy()], labels[there].numpy())
            return values

        return note

    for batch, labels in _batches(trees):
        changes = {layer: noted(layer, labels) for layer in range(len(found))}
        with evaluating(model.learner) as device, changed_states(model.backbone, changes):
            model.learner.states(batch.to(device))
        advance(batch.tokens)
    return found


def _losses(model: AnalysedModel, trees: Sequence[_MaskedTree], erasers: dict[int, Eraser], advance: Advance) -> Floats:
    """Return the loss of each masked piece in nats, with the states of words erased in some layers."""
    assert model.masks is not None
    found: list[Floats] = []

    def erased(eraser: Eraser, words: Tensor) -> Change:
        return lambda values: torch.where(words.to(values.device)[:, None], eraser.apply(values), values)

    for batch, words in _batches(trees):
        changes = {layer: erased(eraser, words != NOTHING) for layer, eraser in erasers.items()}
        with evaluating(model.learner) as device, changed_states(model.backbone, changes):
            there = batch.to(device)
            scores = model.masks.outputs(model.learner.states(there), there).float()
            labels = there.targets[model.masks.target].labels
            found.append(functional.cross_entropy(scores, labels, reduction="none").double().cpu().numpy())
        advance(batch.tokens)
    return np.concatenate(found)
