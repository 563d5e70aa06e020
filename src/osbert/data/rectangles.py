"""Examples as padded rectangles, for backends that need them, such as ONNX. No torch.

Sequences of similar lengths share a rectangle, so that there is little padding. Rectangles have a similar number of
tokens rather than of sequences, so that each takes a similar time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example

Columns = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Rectangle:
    """A padded batch: `ids`, `segments` and `mask` (B, T); the mask is 1 for tokens and 0 for the padding after them.

    `indices` (B,): index of each sequence in the input; `lengths` (B,): its number of tokens.
    """

    ids: Columns
    segments: Columns
    mask: Columns
    indices: tuple[int, ...]
    lengths: tuple[int, ...]


def rectangles(examples: Sequence[Example], *, tokens: int) -> Iterator[Rectangle]:
    """Yield the examples, longest first, in rectangles of at most `tokens` tokens, padding included.

    A sequence longer than `tokens` gets its own rectangle. Raises ValueError for an example with an order,
    positions, unseen tokens or a source.
    """
    if any(
        column is not None for each in examples for column in (each.order, each.positions, each.unseen, each.source)
    ):
        raise ValueError(
            "examples with an order, positions, unseen tokens or a source of their own cannot be padded to a rectangle"
        )
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index]))
    start = 0
    while start < len(order):
        # The first sequence is the longest of its rectangle, so it decides how many rows fit.
        count = max(1, tokens // len(examples[order[start]]))
        indices = order[start : start + count]
        lengths = [len(examples[index]) for index in indices]
        ids, segments, mask = np.zeros((3, len(indices), max(lengths)), np.int64)
        for row, (index, length) in enumerate(zip(indices, lengths)):
            ids[row, :length], segments[row, :length] = examples[index].ids, examples[index].segments
            mask[row, :length] = 1
        yield Rectangle(ids=ids, segments=segments, mask=mask, indices=tuple(indices), lengths=tuple(lengths))
        start += count
