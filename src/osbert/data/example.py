"""Example: one training or prediction item as integer arrays. No torch, so loader workers stay light.

An example is what an objective lays out from documents and a task from a record; collation (batch.py) turns many of
them into one Batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What an objective wants of one example.

    `labels` (M,): integers for classes, floats for regression. `index` (M,): the tokens of the example that carry them,
    or None when the labels belong to the whole sequence. `weights` (M,): their shares in the mean, None for 1 each.
    """

    labels: NDArray[np.generic]
    index: Integers | None = None
    weights: NDArray[np.floating] | None = None


@dataclass(frozen=True, kw_only=True)
class Example:
    """One sequence with its specials in place; n = its tokens.

    `ids` (n,): pieces. `segments` (n,): 0 for text A with its [CLS] and [SEP], 1 for text B with its [SEP]. `words`
    (n,): True where a word starts, False on its further pieces and on specials. `special` (n,): True on [CLS] and
    [SEP], which no objective corrupts. `record`: which record the sequence belongs to. `truncated`: tokens of the
    source that did not fit.

    `order` (n,): when a token is revealed, None for 0 everywhere. `positions` (n,): where it stands in the text, None
    for 0, 1, 2, ... `unseen` (n,): True on a token that sees others and is seen by none, itself included; None for
    False everywhere.

    `sentences` (n,): True where a sentence starts, False on its further pieces and on specials; None where nothing
    needed them.

    `source`: the text that a decoder writes from, and that all n tokens see; the tokens are then what a decoder reads
    of the text that it writes (data/written.py). None where there is no decoder.
    """

    ids: Integers
    segments: Integers
    words: Booleans
    special: Booleans
    order: Integers | None = None
    positions: Integers | None = None
    unseen: Booleans | None = None
    sentences: Booleans | None = None
    source: Example | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    record: int = 0
    truncated: int = 0

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)

    def changed(self, *, ids: Integers, name: str, target: Target) -> Example:
        """Return the example with other `ids` (n,) and one more target: what corrupting comes to."""
        return replace(self, ids=ids, targets={**self.targets, name: target})
