"""Example: one training or prediction item as integer arrays. No torch, so loader workers stay light.

Objectives make examples of documents, tasks make them of records; collation (batch.py) turns many examples into one
Batch. Many rows of different lengths lie in one array: `begins`, `ranges` and `rows` find where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer]
Booleans = NDArray[np.bool_]
Places = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The labels of one objective for one example.

    `labels` (M,): integers for classes, floats for regression. `index` (M,): the tokens of the example that carry them,
    or None if the labels belong to the whole sequence. `weights` (M,): their weights in the mean, None for 1 each.
    """

    labels: NDArray[np.generic]
    index: Integers | None = None
    weights: NDArray[np.floating] | None = None


@dataclass(frozen=True, kw_only=True)
class Example:
    """One sequence of n tokens, special tokens included.

    `ids` (n,): pieces. `segments` (n,): 0 for text A with its [CLS] and [SEP], 1 for text B with its [SEP]. `words`
    (n,): True where a word starts, False on its further pieces and on specials. `special` (n,): True on [CLS] and
    [SEP], which no objective corrupts. `record`: index of the sequence's record. `truncated`: tokens of the text
    that did not fit.

    `order` (n,): the time at which a token is revealed, None for 0 everywhere. `positions` (n,): the token's position
    in the text, None for 0, 1, 2, ... `unseen` (n,): True on a token that attends to others but to which none attends,
    not even itself; None for False everywhere.

    `sentences` (n,): True where a sentence starts, False on its further pieces and on specials; None if no objective
    needs it. `head_words` (n,): True at the tokens that the head reads: where its words start, or those that
    have a vector (ColBERT); None if the head does not ask.

    `source`: the input of the encoder, to which all n tokens attend; the n tokens are then the decoder's input
    (osbert_lab/writing). None without a decoder.
    """

    ids: Integers
    segments: Integers
    words: Booleans
    special: Booleans
    order: Integers | None = None
    positions: Integers | None = None
    unseen: Booleans | None = None
    sentences: Booleans | None = None
    head_words: Booleans | None = None
    source: Example | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    record: int = 0
    truncated: int = 0

    def __len__(self) -> int:
        """Return n, the number of tokens."""
        return len(self.ids)

    def with_target(self, *, ids: Integers, name: str, target: Target) -> Example:
        """Return the example with other `ids` (n,) and one more target."""
        return replace(self, ids=ids, targets={**self.targets, name: target})


def are_mostly_unknown(groups: Sequence[Sequence[Example]], unknown: int) -> list[bool]:
    """Return for each group of sequences whether most of its pieces have the id `unknown`, -1 for none.

    Special pieces do not count. All groups are compared at once.
    """
    examples = [example for group in groups for example in group]
    if unknown < 0 or not examples:
        return [False] * len(groups)
    owners = np.repeat(np.arange(len(groups)), [sum(map(len, group)) for group in groups])
    pieces = ~np.concatenate([example.special for example in examples])
    signs = np.where(np.concatenate([example.ids for example in examples]) == unknown, 1, -1) * pieces
    lacking: list[bool] = (np.bincount(owners, weights=signs, minlength=len(groups)) > 0).tolist()
    return lacking


def begins(counts: Places) -> Places:
    """Return the start of each row (B,) from the lengths of the rows: an exclusive cumulative sum."""
    starts: Places = np.cumsum(counts)
    starts -= counts
    return starts


def ranges(starts: Places, counts: Places) -> Places:
    """Return start, start + 1, ... for each row, `counts` (B,) numbers each, concatenated (M,)."""
    # Item m of the output is m + (start of its row in the values - start of its row in the output).
    numbers = np.repeat(starts - begins(counts), counts)
    numbers += np.arange(len(numbers))
    return numbers


def rows(counts: Places) -> tuple[Places, Places]:
    """Return the row of each of M items and its index in that row, (M,) each."""
    return np.repeat(np.arange(len(counts)), counts), ranges(np.zeros_like(counts), counts)
