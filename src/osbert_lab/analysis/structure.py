"""The structural probe: a linear map under which squared distances of words approximate distances in the tree.

Hewitt and Manning 2019, section 3: the loss is the mean of |d_tree(i, j) - |B (h_i - h_j)|^2| over the pairs of a
sentence. Trees are recovered from the distances as minimum spanning trees. A probe can read a mix of layers, whose
weights are trained with it (Tenney et al. 2019, section 3). Its codelength codes each distance by a Laplace
distribution: up to a constant it is a mean absolute error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from osbert_lab.analysis.advance import SILENT, Advance
from osbert_lab.analysis.figures import Floats
from osbert_lab.analysis.probe import States, control_labels, portion_ends

RANK = 64
"""Rank of the map: the paper's scores no longer grow above it (figure 4 there)."""
EPOCHS, BATCH = 40, 20
RATE, PATIENCE = 1e-2, 4
"""Adam's learning rate, divided by 10 when the held-out loss does not fall; training ends at the fourth time."""
MIX_RATE = 10
"""Factor of the learning rate of the mix."""
FEWEST = 20
"""Fewest trees in the first portion of the code, which the first probe is trained on."""

Squares = NDArray[np.float32]


@dataclass(frozen=True)
class MeasuredTree:
    """The states of a tree's words, (W, D) or (M, W, D) in M layers, and the distances (W, W) in arcs."""

    states: States
    distances: Squares


def tree_distances(heads: Sequence[int]) -> Squares:
    """Return the number of arcs between each two words of a tree (W, W); infinity if not connected.

    >>> tree_distances([1, -1, 1, 2]).tolist()[0]
    [0.0, 1.0, 2.0, 3.0]
    """
    above = [{word: 0} for word in range(len(heads))]  # of each word those above it, with the number of arcs
    for word, head in enumerate(heads):
        steps = 1
        while head >= 0:
            above[word][head] = steps
            head, steps = heads[head], steps + 1
    distances = np.full((len(heads), len(heads)), np.inf, np.float32)
    for first, first_steps in enumerate(above):
        for other, other_steps in enumerate(above[: first + 1]):
            # The path goes through the lowest common ancestor, which minimises the sum of both ways up.
            ways = [first_steps[word] + other_steps[word] for word in first_steps.keys() & other_steps.keys()]
            distances[first, other] = distances[other, first] = min(ways, default=np.inf)
    return distances


def control_heads(words: Sequence[str], counted: Sequence[bool], seed: int) -> list[int]:
    """Return the heads of a control tree that depends on word types alone, -1 for the root.

    The first counted word is the root and the last one depends on it. A random label of its type attaches every other
    word to one of the two: the control task of Hewitt and Liang 2019, section 2, without words that are their own
    heads.

    >>> heads = control_heads(["a", "b", "a", "c", "."], [True, True, True, True, False], seed=0)
    >>> heads[0], heads[3], heads[2] in (0, 3)
    (-1, 0, True)
    """
    counted_words = np.flatnonzero(counted).tolist() or [0]
    first, last = counted_words[0], counted_words[-1]
    sides = control_labels([word.lower() for word in words], np.array([0.5, 0.5]), seed)
    heads = np.where(sides == 0, first, last)
    heads[last], heads[first] = first, -1
    head_indices: list[int] = heads.tolist()
    return head_indices


class StructuralProbe:
    """The map B (D, R) on states. Each layer is divided by its own deviation, so that all have one scale."""

    def __init__(
        self,
        trees: Sequence[MeasuredTree],
        *,
        seed: int,
        advance: Advance = SILENT,
    ) -> None:
        """Train on trees and keep the best epoch. Every fifth tree is held out for the learning rate.

        Calls `advance` with the trees of each epoch, in the end with those of the epochs that were not needed.
        """
        # One scale for each of the M layers: the root of the mean variance of its features.
        variances = np.mean([_as_layers(tree.states).var(1).mean(-1) for tree in trees], 0)  # (M,)
        self.scale = torch.from_numpy(np.sqrt(variances)).view(-1, 1, 1)
        self.mix = torch.zeros(len(self.scale), dtype=torch.float32, requires_grad=True)
        generator = torch.Generator().manual_seed(seed)
        shape = trees[0].states.shape[-1], RANK
        self.map = ((torch.rand(shape, dtype=torch.float32, generator=generator) - 0.5) / 10).requires_grad_()
        # The same trees that tree_codelength takes the spread from.
        held = self._batches(trees[4::5])
        training = self._batches([tree for number, tree in enumerate(trees) if number % 5 != 4])
        rate, best, best_parameters = RATE, float("inf"), self._copies()
        optimizer = self._optimizer(rate)
        failures = 0
        for epoch in range(EPOCHS):
            for number in torch.randperm(len(training), generator=generator).tolist():
                optimizer.zero_grad()
                self._loss(*training[number]).backward()
                optimizer.step()
            advance(len(trees))
            with torch.no_grad():
                now = float(sum(self._loss(*batch) * len(batch[0]) for batch in held))
            if now < best:
                best, best_parameters = now, self._copies()
                continue
            failures += 1
            if failures == PATIENCE:
                advance((EPOCHS - 1 - epoch) * len(trees))
                break
            # A new optimiser: the moments of Adam start again with the lower rate.
            rate /= 10
            optimizer = self._optimizer(rate)
        self.map, self.mix = best_parameters

    @property
    def layer_weights(self) -> Floats:
        """Return the weight (M,) of each layer in the mix; they sum to 1."""
        weights: Floats = self.mix.detach().double().softmax(-1).numpy()
        return weights

    def distances(self, states: States) -> Squares:
        """Return the squared distances (W, W) of the words of a sentence with states (W, D) or (M, W, D)."""
        with torch.no_grad():
            squares: Squares = self._squares(torch.from_numpy(_as_layers(states))[None])[0].numpy()
        return squares

    def _optimizer(self, rate: float) -> torch.optim.Optimizer:
        mix: dict[str, Any] = {"params": [self.mix], "lr": MIX_RATE * rate}  # few steps to any shares from even ones
        return torch.optim.Adam([{"params": [self.map]}, mix], lr=rate)

    def _copies(self) -> tuple[Tensor, Tensor]:
        return self.map.detach().clone(), self.mix.detach().clone()

    def _squares(self, states: Tensor) -> Tensor:
        mixed = torch.einsum("m,bmwd->bwd", self.mix.softmax(-1), states / self.scale)
        mapped = mixed @ self.map  # (B, W, R)
        sizes = mapped.square().sum(-1)
        # |a - b|^2 = |a|^2 + |b|^2 - 2ab, without a tensor (B, W, W, R); rounding may make it slightly negative.
        return (sizes[:, :, None] + sizes[:, None] - 2 * mapped @ mapped.transpose(1, 2)).clamp_min(0)

    def _loss(self, states: Tensor, distances: Tensor, pair_mask: Tensor) -> Tensor:
        apart = (self._squares(states) - distances).abs() * pair_mask
        # The mean over the pairs of a sentence, then over sentences: long sentences count no more.
        return (apart.sum((1, 2)) / pair_mask.sum((1, 2))).mean()

    @staticmethod
    def _batches(trees: Sequence[MeasuredTree]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return padded states (B, M, W, D), distances (B, W, W) and a mask (B, W, W), by similar length."""
        ordered = sorted(trees, key=lambda tree: len(tree.distances))
        batches = []
        for first in range(0, len(ordered), BATCH):
            some = ordered[first : first + BATCH]
            longest = len(some[-1].distances)
            short = [longest - len(tree.distances) for tree in some]
            states = [np.pad(_as_layers(tree.states), ((0, 0), (0, n), (0, 0))) for tree, n in zip(some, short)]
            apart = [functional.pad(torch.from_numpy(tree.distances), (0, n, 0, n)) for tree, n in zip(some, short)]
            masks = [
                functional.pad(torch.ones_like(torch.from_numpy(tree.distances)), (0, n, 0, n))
                for tree, n in zip(some, short)
            ]
            batches.append((torch.from_numpy(np.stack(states)), torch.stack(apart), torch.stack(masks)))
        return batches


def _as_layers(states: States) -> Squares:
    """Return states (M, W, D) from those of one layer (W, D) or of several, as float32."""
    return np.asarray(states, np.float32).reshape(-1, *states.shape[-2:])


def distance_bits(squares: Squares, distances: Squares, spread: float) -> Floats:
    """Return the bits of the distance of each pair (W (W - 1) / 2,), given a probe's squared distances (W, W).

    A distance from 1 to W - 1 has a probability proportional to exp(-|distance - squared distance| / spread).

    >>> line = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    >>> distance_bits(line, line, 1e9).round(3).tolist(), distance_bits(line, line, 0.1).round(3).tolist()
    ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    """
    pairs = np.triu_indices(len(distances), 1)
    values = np.arange(1, len(distances))
    costs = np.abs(values - squares[pairs].astype(np.float64)[:, None]) / spread  # (pairs, W - 1)
    gold_costs = np.abs(distances[pairs] - squares[pairs].astype(np.float64)) / spread
    # log-sum-exp with the smallest cost taken out, which keeps exp from underflowing.
    least = costs.min(-1, initial=np.inf)
    bits: Floats = (gold_costs - least + np.log(np.exp(least[:, None] - costs).sum(-1))) / np.log(2)
    return bits


def tree_codelength(
    trees: Sequence[MeasuredTree],
    *,
    seed: int,
    advance: Advance = SILENT,
) -> tuple[Floats, Floats, Floats]:
    """Return for each tree (T,) the bits of its distances in the online and in a uniform code, and their number.

    Voita and Titov 2020, section 2.2: each portion of the trees is coded by a probe of the trees before it, the first
    one uniformly. The spread of the code is the mean error of the probe on its held-out trees.
    """
    even = [len(tree.distances) * (len(tree.distances) - 1) / 2 * np.log2(len(tree.distances) - 1) for tree in trees]
    ends = tree_portion_ends(len(trees))
    # A uniform code over 1 to W - 1 takes log2(W - 1) bits for each of the W (W - 1) / 2 distances.
    bits = even[: ends[0]]
    for begin, end in pairwise(ends):
        probe = StructuralProbe(trees[:begin], seed=seed, advance=advance)
        errors = [np.abs(probe.distances(tree.states) - tree.distances)[_above(tree)] for tree in trees[4:begin:5]]
        spread = max(float(np.concatenate(errors).mean()), 1e-3)
        for tree in trees[begin:end]:
            bits.append(float(distance_bits(probe.distances(tree.states), tree.distances, spread).sum()))
    words = np.array([len(tree.distances) for tree in trees])
    return np.array(bits), np.array(even), words * (words - 1) / 2


def tree_portion_ends(count: int) -> list[int]:
    """Return the ends of the portions of `count` trees; each but the last is also a number of trees to train on."""
    return [end for end in portion_ends(count) if end >= min(FEWEST, count)]


def _above(tree: MeasuredTree) -> tuple[NDArray[np.intp], ...]:
    return np.triu_indices(len(tree.distances), 1)


def spanning_tree(distances: Squares) -> set[tuple[int, int]]:
    """Return the arcs (low, high) of the minimum spanning tree of distances (W, W), by Prim's algorithm.

    >>> sorted(spanning_tree(np.array([[0, 1, 4], [1, 0, 2], [4, 2, 0]])))
    [(0, 1), (1, 2)]
    """
    count = len(distances)
    inside = np.zeros(count, bool)
    nearest, near = np.zeros(count, int), np.full(count, np.inf)
    arcs: set[tuple[int, int]] = set()
    word = 0
    for _ in range(count - 1):
        inside[word] = True
        closer = distances[word] < near
        near[closer], nearest[closer] = distances[word][closer], word
        # The word outside the tree that is nearest to it; `nearest` is its neighbour inside.
        word = int(np.where(inside, np.inf, near).argmin())
        other = int(nearest[word])
        arcs.add((min(word, other), max(word, other)))
    return arcs


def right_arcs(distances: Squares, heads: Sequence[int], counted: Sequence[bool]) -> tuple[int, int]:
    """Return the number of correct arcs of the spanning tree of counted words, and the number of gold arcs."""
    words = np.flatnonzero(counted)
    if len(words) < 2:
        return 0, 0
    gold = {(min(word, head), max(word, head)) for word, head in enumerate(heads) if head >= 0}
    gold = {(word, other) for word, other in gold if counted[word] and counted[other]}
    arcs = {(int(words[word]), int(words[other])) for word, other in spanning_tree(distances[np.ix_(words, words)])}
    return len(gold & arcs), len(gold)


def rank_correlation(first_distances: Squares, second_distances: Squares) -> float:
    """Return the mean over words of Spearman's correlation of the distances from that word; NaN if undefined.

    The distance of a word from itself is included, as in the authors' code.
    """
    from scipy.stats import rankdata

    # Ranks from 1 to W have the mean (W + 1) / 2.
    centred = [
        rankdata(distances, axis=-1) - (distances.shape[-1] + 1) / 2
        for distances in (first_distances, second_distances)
    ]
    sizes = np.sqrt(np.square(centred[0]).sum(-1) * np.square(centred[1]).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        each: Floats = (centred[0] * centred[1]).sum(-1) / sizes
    return float(np.nanmean(each)) if np.isfinite(each).any() else float("nan")
