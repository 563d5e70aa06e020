"""The structural probe: a linear map after which squared distances of words are their distances in the tree.

Hewitt and Manning 2019, section 3: the loss is the mean of |d_tree(i, j) - |B (h_i - h_j)|^2| over the pairs of a
sentence. Trees are read back from such distances as minimum spanning trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from osbert.analysis.figures import Floats
from osbert.analysis.probe import States

RANK = 64
"""Rows of the map: above so many the paper's scores grow no more (figure 4 there)."""
EPOCHS, BATCH = 40, 20
RATE, PATIENCE = 1e-2, 4
"""The learning rate of Adam, which falls to a tenth wherever the held sentences do not gain, and how often it may."""

Squares = NDArray[np.float32]


@dataclass(frozen=True)
class MeasuredTree:
    """The states (W, D) of a tree's words, and how far each two lie apart in it (W, W), in arcs."""

    states: States
    distances: Squares


def tree_distances(heads: Sequence[int]) -> Squares:
    """Return how many arcs lie between each two words of a tree (W, W); infinity where there is no way.

    >>> tree_distances([1, -1, 1, 2]).tolist()[0]
    [0.0, 1.0, 2.0, 3.0]
    """
    above = [{word: 0} for word in range(len(heads))]  # of each word those above it, with the number of arcs
    for word, head in enumerate(heads):
        steps = 1
        while head >= 0:
            above[word][head] = steps
            head, steps = heads[head], steps + 1
    found = np.full((len(heads), len(heads)), np.inf, np.float32)
    for one, mine in enumerate(above):
        for other, theirs in enumerate(above[: one + 1]):
            ways = [mine[word] + theirs[word] for word in mine.keys() & theirs.keys()]
            found[one, other] = found[other, one] = min(ways, default=np.inf)
    return found


class StructuralProbe:
    """The map B (D, R) over states that are divided by one deviation, so that all layers have one scale."""

    def __init__(self, trees: Sequence[MeasuredTree], *, seed: int) -> None:
        """Train on trees; every fifth is held to say when the learning rate falls. The best of all epochs is kept."""
        self.scale = float(np.sqrt(np.mean([np.asarray(tree.states, np.float32).var(0).mean() for tree in trees])))
        generator = torch.Generator().manual_seed(seed)
        shape = trees[0].states.shape[1], RANK
        self.map = ((torch.rand(shape, generator=generator) - 0.5) / 10).requires_grad_()
        held = self._batches(trees[4::5])
        training = self._batches([tree for number, tree in enumerate(trees) if number % 5 != 4])
        rate, best, kept = RATE, float("inf"), self.map.detach().clone()
        optimizer = torch.optim.Adam([self.map], lr=rate)
        failures = 0
        for _ in range(EPOCHS):
            for number in torch.randperm(len(training), generator=generator).tolist():
                optimizer.zero_grad()
                self._loss(*training[number]).backward()
                optimizer.step()
            with torch.no_grad():
                now = float(sum(self._loss(*batch) * len(batch[0]) for batch in held))
            if now < best:
                best, kept = now, self.map.detach().clone()
                continue
            failures += 1
            if failures == PATIENCE:
                break
            rate /= 10
            optimizer = torch.optim.Adam([self.map], lr=rate)
        self.map = kept

    def distances(self, states: States) -> Squares:
        """Return the squared distance (W, W) of each two of a sentence's words (W, D)."""
        with torch.no_grad():
            found: Squares = self._squares(torch.from_numpy(np.asarray(states, np.float32))[None])[0].numpy()
        return found

    def _squares(self, states: Tensor) -> Tensor:
        mapped = states / self.scale @ self.map  # (B, W, R)
        sizes = mapped.square().sum(-1)
        return (sizes[:, :, None] + sizes[:, None] - 2 * mapped @ mapped.transpose(1, 2)).clamp_min(0)

    def _loss(self, states: Tensor, distances: Tensor, there: Tensor) -> Tensor:
        apart = (self._squares(states) - distances).abs() * there
        return (apart.sum((1, 2)) / there.sum((1, 2))).mean()

    @staticmethod
    def _batches(trees: Sequence[MeasuredTree]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return states (B, W, D), distances (B, W, W) and where both words are there, sentences of like length."""
        ordered = sorted(trees, key=lambda tree: len(tree.states))
        found = []
        for first in range(0, len(ordered), BATCH):
            some = ordered[first : first + BATCH]
            longest = len(some[-1].states)
            short = [longest - len(tree.states) for tree in some]
            states = [np.pad(np.asarray(one.states, np.float32), ((0, n), (0, 0))) for one, n in zip(some, short)]
            apart = [functional.pad(torch.from_numpy(one.distances), (0, n, 0, n)) for one, n in zip(some, short)]
            there = [
                functional.pad(torch.ones_like(torch.from_numpy(one.distances)), (0, n, 0, n))
                for one, n in zip(some, short)
            ]
            found.append((torch.from_numpy(np.stack(states)), torch.stack(apart), torch.stack(there)))
        return found


def spanning_tree(distances: Squares) -> set[tuple[int, int]]:
    """Return the arcs (low, high) of the minimum spanning tree of so many words (W, W), by Prim's algorithm.

    >>> sorted(spanning_tree(np.array([[0, 1, 4], [1, 0, 2], [4, 2, 0]])))
    [(0, 1), (1, 2)]
    """
    count = len(distances)
    inside = np.zeros(count, bool)
    nearest, near = np.zeros(count, int), np.full(count, np.inf)
    found: set[tuple[int, int]] = set()
    word = 0
    for _ in range(count - 1):
        inside[word] = True
        closer = distances[word] < near
        near[closer], nearest[closer] = distances[word][closer], word
        word = int(np.where(inside, np.inf, near).argmin())
        other = int(nearest[word])
        found.add((min(word, other), max(word, other)))
    return found


def right_arcs(distances: Squares, heads: Sequence[int], counted: Sequence[bool]) -> tuple[int, int]:
    """Return how many arcs between words that are counted the spanning tree of these has, and how many there are."""
    words = np.flatnonzero(counted)
    if len(words) < 2:
        return 0, 0
    gold = {(min(one, head), max(one, head)) for one, head in enumerate(heads) if head >= 0}
    gold = {(one, other) for one, other in gold if counted[one] and counted[other]}
    found = {(int(words[one]), int(words[other])) for one, other in spanning_tree(distances[np.ix_(words, words)])}
    return len(gold & found), len(gold)


def rank_correlation(one: Squares, other: Squares) -> float:
    """Return Spearman's correlation of the distances from each word, a mean over the words; NaN where none differ.

    A word's distance from itself counts, as in the authors' code.
    """
    from scipy.stats import rankdata

    centred = [rankdata(distances, axis=-1) - (distances.shape[-1] + 1) / 2 for distances in (one, other)]
    sizes = np.sqrt(np.square(centred[0]).sum(-1) * np.square(centred[1]).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        each: Floats = (centred[0] * centred[1]).sum(-1) / sizes
    return float(np.nanmean(each)) if np.isfinite(each).any() else float("nan")
