"""The importance of heads for a loss, by gradients, and the loss after the removal of heads.

Michel et al. 2019, "Are Sixteen Heads Really Better than One?", equation 2: a head's output is multiplied by a gate of
1, and its importance is the mean over items of |dL/dgate|. It is divided by the l2 norm of its layer, because gradients
of different layers have different sizes. Heads are ranked on one half of the items, and the loss without them is
measured on the other half: a ranking looks too good on the items that it was computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from osbert.analysis.attribution import can_be_weighed
from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.models.contract import Loss
from osbert.models.initialisation import copy_modules
from osbert.reports.page import Section
from osbert_lab.analysis.figures import Figure, Floats, RunningMeans, label_indices, ratio_interval
from osbert_lab.analysis.hooks import gate_heads
from osbert_lab.analysis.importance_section import importance_section
from osbert_lab.analysis.kinds.contract import Advance, Experiment
from osbert_lab.analysis.model import AnalysedModel

ITEMS = 512
"""Most items of a sample: half of them to rank heads, half to measure the loss."""
LEAST = 8
"""Fewest items in each half for which figures are reported."""
REMOVED = 10
"""Most heads removed together; never more than a quarter of all."""
GROUPS = ("all heads", "the most important", "random ones", "the least important")
"""The measured conditions: all heads, and three ways to choose the removed ones."""
BACKWARD = 3
"""Work of a pass with gradients, in forward passes."""

Item = Sequence[Example]
"""The sequences of one text or row with their targets; one gradient is computed for each item."""
LossOf = Callable[[Batch], Loss]
T = TypeVar("T")


def spread(items: Sequence[T]) -> list[T]:
    """Return at most ITEMS items, evenly spaced from the first on."""
    return [items[index] for index in np.linspace(0, len(items), min(len(items), ITEMS), endpoint=False).astype(int)]


class HeadImportance(Experiment):
    """The importance of heads for one loss of a model. A subclass defines the loss and the items."""

    least = f"{2 * LEAST} rows"
    loss_name: ClassVar[str]
    """What the loss is of, for sentences of the report."""
    unit: ClassVar[str]
    """The name of the items, in the plural."""

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why the loss or its gradient by the heads cannot be computed; "" if it can."""
        if reason := super().obstacle(model):
            return reason
        return "" if can_be_weighed(model.learner) else "the encoder is frozen below features, and has no gradients"

    def items(self, model: AnalysedModel, sample: object) -> list[Item]:
        """Return at most ITEMS items of a sample. Even indices rank heads, odd ones measure the loss."""
        raise NotImplementedError

    def loss(self, model: AnalysedModel) -> LossOf:
        """Return a function from a batch with targets to its loss."""
        raise NotImplementedError

    def work(self, model: AnalysedModel, sample: object) -> int:
        """Return the work in tokens; tokens of a pass with gradients count three times."""
        tokens, count = getattr(sample, "tokens", 0), len(sample)  # type: ignore[arg-type]
        used = tokens * min(count, ITEMS) // max(count, 1)
        # Half of the tokens are read once with gradients, the other half once for each condition.
        return used * (BACKWARD + len(GROUPS)) // 2

    def measure(self, model: AnalysedModel, sample: object, advance: Advance) -> list[Figure]:
        """Rank the heads on every other item; measure the loss of the rest with all heads and without some."""
        items = self.items(model, sample)
        ranked, scored = items[::2], items[1::2]
        if len(scored) < LEAST:
            return []
        device = next(model.learner.parameters()).device
        with torch.inference_mode(False):
            slopes = head_slopes(model, ranked, self.loss, advance)  # (L, H)
            common = Figure(name="", value=0, n=len(ranked), unit=self.unit, data=self.reads, seed=model.seed)
            figures = _importance(slopes, common)
            batches = [_batch(item, device) for item in scored]
            results = {}
            for name, heads in _groups(slopes, model.seed).items():
                gates = torch.ones(slopes.mean.shape, dtype=torch.float32, device=device)
                for layer, head in heads:
                    gates[layer, head] = 0
                results[name] = heads, _score_batches(batches, self.loss(_gate(model, gates)))
                advance(sum(sum(map(len, item)) for item in scored))
        return figures + _ablation(results, replace(common, n=len(scored)))

    @classmethod
    def section(cls, figures: Sequence[Figure]) -> Section:
        """Return the map of importance, and the loss without heads."""
        return importance_section(figures, cls.loss_name)


def head_slopes(
    model: AnalysedModel,
    items: Sequence[Item],
    loss_of: Callable[[AnalysedModel], LossOf],
    advance: Callable[[int], None],
) -> RunningMeans:
    """Return the mean |dL/dgate| (L, H) of each head over items. `loss_of`: from a model to its loss of a batch."""
    device = next(model.learner.parameters()).device
    slopes = RunningMeans()
    shape = _shape(model, _batch(items[0], device))
    gates = torch.ones(shape, dtype=torch.float32, device=device, requires_grad=True)
    loss = loss_of(_gate(model, gates))
    for item in items:
        # The absolute value of each item before the mean: gradients of opposite sign must not cancel.
        slopes.add(np.abs(_slopes(_batch(item, device), loss, gates)))
        advance(BACKWARD * sum(map(len, item)))
    return slopes


@dataclass(frozen=True)
class _Scores:
    """Sums over each of n items: loss `totals`, label `counts` that they are means over, and correct `hits`."""

    totals: Floats
    counts: Floats
    hits: Floats

    @property
    def knows_hits(self) -> bool:
        return not np.isnan(self.hits).any()


def layer_normalised(values: Floats) -> Floats:
    """Return values (L, H) divided by the l2 norm of their layer.

    >>> layer_normalised(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    norms = np.sqrt(np.square(values).sum(axis=1, keepdims=True))
    return np.asarray(values / np.where(norms > 0, norms, 1))


def _batch(item: Item, device: torch.device) -> Batch:
    return collate([replace(example, record=0) for example in item]).to(device)


def _gate(model: AnalysedModel, gates: Tensor) -> AnalysedModel:
    """Return a copy of the model that multiplies the output of each head by its gate, without gradients of weights."""
    masks = None if model.masks is None else copy_modules(model.masks)
    return replace(model, learner=gate_heads(model.learner, gates), masks=masks)


def _slopes(batch: Batch, loss: LossOf, gates: Tensor) -> Floats:
    """Return the gradient (L, H) of the mean loss of a batch with respect to the gates of heads."""
    with torch.enable_grad():
        batch_loss = loss(batch)
    (slopes,) = torch.autograd.grad(batch_loss.total / batch_loss.count, gates)
    return np.asarray(slopes.double().cpu().numpy())


def _shape(model: AnalysedModel, batch: Batch) -> tuple[int, int]:
    """Return the numbers of layers and of heads; the latter from the attention of the first layer."""
    with torch.no_grad():
        first = next(iter(model.backbone.weights(batch)))
    return len(model.backbone.mixers), len(first[0])


def _groups(slopes: RunningMeans, seed: int) -> dict[str, list[tuple[int, int]]]:
    """Return the heads to remove for each condition of GROUPS, as (layer, head) from 0."""
    shape = slopes.mean.shape
    ranking = np.argsort(-layer_normalised(slopes.mean), axis=None, kind="stable")
    count = min(REMOVED, max(1, len(ranking) // 4))
    # A stream of its own, so that other samples of the same seed stay independent of it.
    drawn = np.random.default_rng([seed, 2]).permutation(len(ranking))
    # In the order of GROUPS: none, most important, random, least important.
    chosen = ranking[:0], ranking[:count], drawn[:count], ranking[-count:]
    return {
        name: [(flat_index // shape[1], flat_index % shape[1]) for flat_index in numbers.tolist()]
        for name, numbers in zip(GROUPS, chosen, strict=True)
    }


def _score_batches(batches: Sequence[Batch], loss: LossOf) -> _Scores:
    loss_rows = []
    with torch.no_grad():
        for batch in batches:
            batch_loss = loss(batch)
            loss_rows.append(
                (
                    float(batch_loss.total),
                    float(batch_loss.count),
                    np.nan if batch_loss.hits is None else float(batch_loss.hits),
                )
            )
    totals, counts, hits = np.array(loss_rows, np.float64).T
    return _Scores(totals, counts, hits)


def _importance(slopes: RunningMeans, common: Figure) -> list[Figure]:
    """Return the importance and the gradient of each head; the baseline is equal importance in a layer."""
    mean = slopes.mean
    importance = layer_normalised(mean)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.where(mean > 0, importance / mean, 0)  # an interval is scaled as its mean is
    # H equal values with an l2 norm of 1.
    even = 1 / np.sqrt(mean.shape[1])
    figures = []
    for index, where in label_indices(mean.shape, "layer", "head"):
        low, high = slopes.interval(index) or (np.nan, np.nan)
        ends = (max(0.0, low) * float(factor[index]), high * float(factor[index]))
        head_figure = replace(
            common, where=where, value=float(importance[index]), interval=ends, baselines={"all alike": even}
        )
        figures += [
            replace(head_figure, name="importance"),
            replace(
                head_figure, name="gradient", value=float(mean[index]), interval=slopes.interval(index), baselines={}
            ),
        ]
    return figures


def _ablation(results: dict[str, tuple[list[tuple[int, int]], _Scores]], common: Figure) -> list[Figure]:
    """Return the loss, its rise and, if known, the accuracy, with all heads and without some."""
    before = results[GROUPS[0]][1]
    figures = []
    for name, (heads, after) in results.items():
        removed = ", ".join(f"{layer + 1}-{head + 1}" for layer, head in heads)
        group_figure = replace(common, where={"without": name, "heads": removed, "count": len(heads)})
        figures.append(_ratio(replace(group_figure, name="ablation_loss"), after.totals, after.counts))
        if name != GROUPS[0]:
            # The difference is taken per item: the interval of paired items is narrower.
            figures.append(
                _ratio(replace(group_figure, name="ablation_rise"), after.totals - before.totals, after.counts)
            )
        if after.knows_hits:
            figures.append(_ratio(replace(group_figure, name="ablation_accuracy"), after.hits, after.counts))
    whole = {figure.name: figure.value for figure in figures if figure.where["without"] == GROUPS[0]}
    return [
        replace(figure, baselines={GROUPS[0]: whole[figure.name]}) if figure.name in whole else figure
        for figure in figures
    ]


def _ratio(figure: Figure, totals: Floats, counts: Floats) -> Figure:
    """Return a figure with the ratio of two sums over items and its bootstrap interval over items."""
    interval = ratio_interval(totals, counts, seed=figure.seed)
    return replace(figure, value=float(totals.sum() / counts.sum()), interval=interval)
