"""Decoding of linear chains: the best path of labels (Viterbi) and the probability of its parts. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

FORBIDDEN = -1e4
"""Score of a forbidden step: lower than any path of allowed steps, and finite, so that sums are never NaN."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """The transition scores of a path over K labels.

    `steps` (K, K): from a label (row) to the next. `first`, `last` (K,): of the first and the last label.
    """

    first: Scores
    steps: Scores
    last: Scores

    @classmethod
    def free(cls, labels: int) -> Self:
        """Return the chain without transition scores: each of K labels may follow each."""
        return cls(first=np.zeros(labels), steps=np.zeros((labels, labels)), last=np.zeros(labels))

    def legal(self, labels: Sequence[str], follows: Callable[[str, str], bool]) -> Self:
        """Return the chain without the steps that `follows`(before, label) forbids, as in `forbidden`."""
        bans = forbidden(labels, follows)
        return replace(self, first=self.first + bans.first, steps=self.steps + bans.steps, last=self.last + bans.last)

    def best(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the labels (n,) of the path with the highest score, given each label's `scores` (n, K).

        Viterbi's algorithm (1967): the best path to a label is the best path to a label of the previous index, plus the
        step from there. Here the labels with the highest scores are O, I-PER, which is not a legal path:

        >>> from osbert.reading.tagged.schemes import follows
        >>> labels = ["O", "B-PER", "I-PER"]
        >>> chain = Chain.free(3).legal(labels, lambda before, label: follows(before, label, "bio"))
        >>> scores = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
        >>> [labels[one] for one in scores.argmax(axis=1)], [labels[one] for one in chain.best(scores)]
        (['O', 'I-PER'], ['B-PER', 'I-PER'])
        """
        if self._is_free:
            # Without transitions the labels are independent.
            return scores.argmax(axis=1)
        count = len(scores)
        # came[i, k]: the label at i - 1 on the best path to label k at i.
        came = np.empty(scores.shape, np.int64)
        total = self.first + scores[0]
        for index in range(1, count):
            # (K, K): the score of the best path to a label (row), and on to the next (column).
            ways = total[:, None] + self.steps
            came[index] = ways.argmax(axis=0)
            # The label's own score is the same for every way to it: added after the maximum.
            total = ways.max(axis=0) + scores[index]
        path = np.empty(count, np.int64)
        # Backtrack from the best last label.
        path[-1] = (total + self.last).argmax()
        for index in range(count - 1, 0, -1):
            path[index - 1] = came[index, path[index]]
        return path

    def probabilities(
        self, scores: NDArray[np.floating], path: NDArray[np.int64], parts: Sequence[tuple[int, int]]
    ) -> list[float]:
        """Return the probability of each part [start, end) of a path: that all its labels are those of `path`.

        It is the sum over all paths with these labels, by the forward-backward algorithm (Rabiner 1989, section III).
        `scores` (n, K) and `path` (n,) as in `best`.

        >>> scores = np.log([[0.6, 0.4], [0.5, 0.5]])
        >>> both, first = Chain.free(2).probabilities(scores, np.array([0, 1]), [(0, 2), (0, 1)])
        >>> round(both, 3), round(first, 3)
        (0.3, 0.6)
        """
        if not parts:
            return []
        steps = np.arange(len(path))
        if self._is_free:
            # Independent labels: the log-probability of a part is a sum.
            log_probabilities = scores[steps, path] - np.logaddexp.reduce(scores, axis=1)
            return [float(np.exp(log_probabilities[start:end].sum())) for start, end in parts]
        forward, backward = self._forward(scores), self._backward(scores)
        # The log-partition function: the sum over all paths.
        whole = np.logaddexp.reduce(forward[-1] + self.last)
        # gained[i]: what index i adds to the path, its own score and the step to it.
        gained = scores[steps, path].astype(np.float64)
        # Pairs of neighbours on the path pick one step each.
        gained[1:] += self.steps[path[:-1], path[1:]]

        def probability(start: int, end: int) -> float:
            # Everything up to `start`, the fixed labels after it, and everything from `end` on.
            before, after = forward[start, path[start]], backward[end - 1, path[end - 1]]
            return float(np.exp(before + gained[start + 1 : end].sum() + after - whole))

        return [probability(start, end) for start, end in parts]

    @property
    def _is_free(self) -> bool:
        return not (self.first.any() or self.steps.any() or self.last.any())

    def _forward(self, scores: NDArray[np.floating]) -> Scores:
        """Return the log-sum-exp (n, K) of the scores of all paths that end in each label."""
        path_sums = np.empty(scores.shape)
        path_sums[0] = self.first + scores[0]
        for index in range(1, len(scores)):
            # (K, K): from each label (row) to each next label (column).
            ways = path_sums[index - 1][:, None] + self.steps
            path_sums[index] = np.logaddexp.reduce(ways, axis=0) + scores[index]
        return path_sums

    def _backward(self, scores: NDArray[np.floating]) -> Scores:
        """Return the log-sum-exp (n, K) of the scores of all continuations after each label."""
        path_sums = np.empty(scores.shape)
        path_sums[-1] = self.last
        for index in range(len(scores) - 2, -1, -1):
            # Row k of the sum: from label k to every next label, whose score and continuation broadcast over rows.
            path_sums[index] = np.logaddexp.reduce(self.steps + scores[index + 1] + path_sums[index + 1], axis=1)
        return path_sums


def forbidden(labels: Sequence[str], follows: Callable[[str, str], bool]) -> Chain:
    """Return the chain that scores FORBIDDEN if `follows`(before, label) is False, and 0 otherwise.

    A path is treated as if "O" came before and after it.
    """
    steps = np.array([[follows(before, label) for label in (*labels, "O")] for before in (*labels, "O")])
    bans = np.where(steps, 0.0, FORBIDDEN)
    return Chain(first=bans[-1, :-1], steps=bans[:-1, :-1], last=bans[:-1, -1])
