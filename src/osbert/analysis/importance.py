"""The importance of heads for a loss, by gradients, and what taking heads away does to that loss.

Michel et al. 2019, "Are Sixteen Heads Really Better than One?", equation 2: a head's output is multiplied by a gate of
1, and the importance is the mean over items of |dL/dgate|; it is divided by the root of the sum of squares of its
layer, since gradients of different layers have different sizes. The heads are ranked on one half of the items, and the
loss without some of them is that of the other half: a ranking flatters itself on what it was made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from osbert.analysis.figures import Figure, Floats, RunningMeans, places
from osbert.analysis.hooks import gated_heads
from osbert.analysis.importance_section import importance_section
from osbert.analysis.interpolation import can_be_weighed, undisturbed
from osbert.analysis.kinds.contract import Advance, Experiment
from osbert.analysis.model import AnalysedModel
from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.evaluation.bootstrap import ratio_interval
from osbert.models.contract import Loss
from osbert.reports.page import Section

ITEMS = 512
"""Most items of a sample: one half to rank heads on, the other to score without them."""
LEAST = 8
"""Fewer items than this in each half, and there is no figure."""
REMOVED = 10
"""Most heads that are taken away together; never more than a quarter of all."""
GROUPS = ("all heads", "the most important", "random ones", "the least important")
"""What is scored: with all heads, and without some of them."""
BACKWARD = 3
"""Times the work of a forward pass that one with gradients is."""

Item = Sequence[Example]
"""The sequences of a text or a row, with their targets: what one gradient is taken of."""
LossOf = Callable[[Batch], Loss]
T = TypeVar("T")


def spread(items: Sequence[T]) -> list[T]:
    """Return ITEMS of some items at most, at even steps from the first on."""
    return [items[place] for place in np.linspace(0, len(items), min(len(items), ITEMS), endpoint=False).astype(int)]


class HeadImportance(Experiment):
    """The importance of heads for one loss of a model, which a subclass names."""

    least = f"{2 * LEAST} rows"
    loss_name: ClassVar[str]
    """What the loss is of, in words."""
    unit: ClassVar[str]
    """What the items are, in the plural."""

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why there is no such loss, or no gradient of it with respect to the heads."""
        if found := super().obstacle(model):
            return found
        return "" if can_be_weighed(model.learner) else "the encoder is frozen below features, and has no gradients"

    def items(self, model: AnalysedModel, sample: object) -> list[Item]:
        """Return the items of a sample, ITEMS at most, in the order in which they are halved."""
        raise NotImplementedError

    def loss(self, model: AnalysedModel) -> LossOf:
        """Return what gives the loss of a batch with targets."""
        raise NotImplementedError

    def work(self, sample: object) -> int:
        """Return how many tokens are read, those with gradients three times."""
        tokens, count = getattr(sample, "tokens", 0), len(sample)  # type: ignore[arg-type]
        used = tokens * min(count, ITEMS) // max(count, 1)
        return used * (BACKWARD + len(GROUPS)) // 2

    def measure(self, model: AnalysedModel, sample: object, advance: Advance) -> list[Figure]:
        """Rank all heads on every other item, and score the rest with all of them and without some."""
        items = self.items(model, sample)
        ranked, scored = items[::2], items[1::2]
        if len(scored) < LEAST:
            return []
        loss = self.loss(model)
        with undisturbed(model.learner) as device:
            shape = _shape(model, _batch(items[0], device))
            slopes = RunningMeans()  # (L, H)
            for item in ranked:
                gates = torch.ones(shape, device=device, requires_grad=True)
                slopes.add(np.abs(_slopes(model, _batch(item, device), loss, gates)))
                advance(BACKWARD * sum(map(len, item)))
            common = Figure(name="", value=0, n=len(ranked), unit=self.unit, data=self.reads, seed=model.seed)
            found = _importance(slopes, common)
            batches = [_batch(item, device) for item in scored]
            results = {}
            for name, heads in _groups(slopes, model.seed).items():
                gates = torch.ones(shape, device=device)
                for layer, head in heads:
                    gates[layer, head] = 0
                results[name] = heads, _scored(model, batches, loss, gates)
                advance(sum(sum(map(len, item)) for item in scored))
        return found + _ablation(results, replace(common, n=len(scored)))

    @classmethod
    def section(cls, figures: Sequence[Figure]) -> Section:
        """Return the map of importance, and the loss without heads."""
        return importance_section(figures, cls.loss_name)


@dataclass(frozen=True)
class _Scores:
    """The loss and the hits of each of some items (n,), as sums, and what they are means over."""

    totals: Floats
    counts: Floats
    hits: Floats

    @property
    def knows_hits(self) -> bool:
        return not np.isnan(self.hits).any()


def layer_normalised(values: Floats) -> Floats:
    """Return values (L, H) divided by the root of the sum of squares of their layer.

    >>> layer_normalised(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    norms = np.sqrt(np.square(values).sum(axis=1, keepdims=True))
    return np.asarray(values / np.where(norms > 0, norms, 1))


def _batch(item: Item, device: torch.device) -> Batch:
    return collate([replace(example, record=0) for example in item]).to(device)


def _slopes(model: AnalysedModel, batch: Batch, loss: LossOf, gates: Tensor) -> Floats:
    """Return the gradient (L, H) of the mean loss of a batch with respect to the gates of heads."""
    with torch.enable_grad(), gated_heads(model.backbone, gates):
        found = loss(batch)
    (slopes,) = torch.autograd.grad(found.total / found.count, gates)
    return np.asarray(slopes.double().cpu().numpy())


def _shape(model: AnalysedModel, batch: Batch) -> tuple[int, int]:
    """Return how many layers there are, and how many heads each has, as the first layer's attention shows."""
    with torch.no_grad():
        first = next(iter(model.backbone.weights(batch)))
    return len(model.backbone.mixers), len(first[0])


def _groups(slopes: RunningMeans, seed: int) -> dict[str, list[tuple[int, int]]]:
    """Return the heads that are taken away together, each (layer, head) from 0."""
    shape = slopes.mean.shape
    ranking = np.argsort(-layer_normalised(slopes.mean), axis=None, kind="stable")
    count = min(REMOVED, max(1, len(ranking) // 4))
    drawn = np.random.default_rng([seed, 2]).permutation(len(ranking))
    chosen = ranking[:0], ranking[:count], drawn[:count], ranking[-count:]
    return {
        name: [(one // shape[1], one % shape[1]) for one in numbers.tolist()]
        for name, numbers in zip(GROUPS, chosen, strict=True)
    }


def _scored(model: AnalysedModel, batches: Sequence[Batch], loss: LossOf, gates: Tensor) -> _Scores:
    found = []
    with torch.no_grad(), gated_heads(model.backbone, gates):
        for batch in batches:
            one = loss(batch)
            found.append((float(one.total), float(one.count), np.nan if one.hits is None else float(one.hits)))
    totals, counts, hits = np.array(found, np.float64).T
    return _Scores(totals, counts, hits)


def _importance(slopes: RunningMeans, common: Figure) -> list[Figure]:
    """Return the importance of each head, with that of a layer's head if all mattered alike."""
    mean = slopes.mean
    share = layer_normalised(mean)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.where(mean > 0, share / mean, 0)  # an interval is scaled as its mean is
    even = 1 / np.sqrt(mean.shape[1])
    found = []
    for index, where in places(mean.shape, "layer", "head"):
        low, high = slopes.interval(index) or (np.nan, np.nan)
        ends = (max(0.0, low) * float(factor[index]), high * float(factor[index]))
        one = replace(common, where=where, value=float(share[index]), interval=ends, baselines={"all alike": even})
        found += [
            replace(one, name="importance"),
            replace(one, name="gradient", value=float(mean[index]), interval=slopes.interval(index), baselines={}),
        ]
    return found


def _ablation(results: dict[str, tuple[list[tuple[int, int]], _Scores]], common: Figure) -> list[Figure]:
    """Return the loss, how much it rises, and the accuracy if there is one, with all heads and without some."""
    before = results[GROUPS[0]][1]
    found = []
    for name, (heads, after) in results.items():
        removed = ", ".join(f"{layer + 1}-{head + 1}" for layer, head in heads)
        one = replace(common, where={"without": name, "heads": removed, "count": len(heads)})
        found.append(_ratio(replace(one, name="ablation_loss"), after.totals, after.counts))
        if name != GROUPS[0]:
            found.append(_ratio(replace(one, name="ablation_rise"), after.totals - before.totals, after.counts))
        if after.knows_hits:
            found.append(_ratio(replace(one, name="ablation_accuracy"), after.hits, after.counts))
    whole = {one.name: one.value for one in found if one.where["without"] == GROUPS[0]}
    return [replace(one, baselines={GROUPS[0]: whole[one.name]}) if one.name in whole else one for one in found]


def _ratio(figure: Figure, totals: Floats, counts: Floats) -> Figure:
    """Return a figure with the ratio of two sums over items, and its interval by the bootstrap over items."""
    interval = ratio_interval(totals, counts, seed=figure.seed)
    return replace(figure, value=float(totals.sum() / counts.sum()), interval=interval)
