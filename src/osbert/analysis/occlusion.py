"""Occlusion: the drop of a score without a word. Slower than gradients, but simple, so it checks them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.analysis.interpolation import Blend, Interpolation
from osbert.data.example import Integers


def occlusion(
    line: Interpolation, groups: Sequence[range], words: Sequence[Integers], chosen: Sequence[Integers]
) -> list[NDArray[np.float64]]:
    """Return for each group of sequences the drop of its score without each of its `chosen` words (C,).

    `words` (n,) for each sequence: the word of each token, -1 for none.
    """
    blends: list[Blend] = []
    for group, wanted in zip(groups, chosen, strict=True):
        for index in group:
            parts = ((words[index] != word).astype(np.float32) for word in _present(words[index], wanted))
            # For each sequence: first the whole text, then one copy without each of its words.
            blends += [line.at(index, 1.0), *(Blend(index, part) for part in parts)]
    scores = line.scores(blends)
    drops_by_group = []
    begin = 0
    for group, wanted in zip(groups, chosen, strict=True):
        drops = np.zeros(len(wanted))
        for index in group:
            # A word in several windows loses the sum of its drops in them.
            is_present = np.isin(wanted, words[index])
            end = begin + 1 + int(is_present.sum())
            drops[is_present] += scores[begin] - scores[begin + 1 : end]
            begin = end
        drops_by_group.append(drops)
    return drops_by_group


def evenly_spaced(weights: NDArray[np.float64], count: int) -> NDArray[np.integer]:
    """Return the indices of `count` words, evenly spaced in the order of their weights (W,); 0: all words.

    They include the highest and the lowest weight. Their rank correlation estimates that of all words.

    >>> evenly_spaced(np.array([0.3, -1.0, 0.1, 0.2, 0.5]), 3).tolist()
    [1, 3, 4]
    """
    if not 0 < count < len(weights):
        return np.arange(len(weights))
    ranks = np.linspace(0, len(weights) - 1, count).round().astype(int)
    return np.sort(np.argsort(weights, kind="stable")[ranks])


def _present(words: Integers, wanted: Integers) -> Integers:
    """Return the wanted words that occur in a sequence, in their order."""
    return wanted[np.isin(wanted, words)]
