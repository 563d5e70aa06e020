"""Occlusion: what a score loses without a word. Slower than gradients, and simple: the check of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.analysis.interpolation import Blend, Interpolation
from osbert.data.example import Integers


def occlusion(
    line: Interpolation, groups: Sequence[range], words: Sequence[Integers], counts: Sequence[int]
) -> list[NDArray[np.float64]]:
    """Return for each group of sequences how much its score drops without each of its words (W,).

    `words` (n,) for each sequence: the word that each token is of, -1 for none. `counts`: W of each group.
    """
    blends: list[Blend] = []
    begins = []
    for place, own in enumerate(words):
        begins.append(len(blends))
        blends += [line.at(place, 1.0), *(Blend(place, (own != word).astype(np.float32)) for word in _present(own))]
    scores = line.scores(blends)
    found = []
    for group, count in zip(groups, counts, strict=True):
        drops = np.zeros(count)
        for place in group:
            whole = begins[place]
            there = _present(words[place])
            drops[there] += scores[whole] - scores[whole + 1 : whole + 1 + len(there)]
        found.append(drops)
    return found


def _present(words: Integers) -> NDArray[np.integer]:
    found = np.unique(words)
    return found[found >= 0]
