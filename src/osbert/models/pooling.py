"""Pooling: one vector per sequence from its tokens' states, and the features of a pair of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from osbert.data.batch import Batch

Pooling = Literal["cls", "mean", "max", "weighted"]
"""cls: the summary's state. mean and max: over all tokens, [CLS] and [SEP] included. weighted: a mean in which
token i (from 1) has weight i, the position-weighted mean of SGPT (Muennighoff 2022, section 3.1.1) for causal
models."""


def pool_states(states: Tensor, batch: Batch, pooling: Pooling, summaries: Tensor) -> list[Tensor]:
    """Return a vector (..., D) for each of the B sequences from the states (N, ..., D) of their tokens.

    `summaries` (B,): the summary token of each sequence (`Backbone.summaries`).
    """
    if pooling == "cls":
        return list(states[summaries].unbind())
    sequences = states.split(list(batch.lengths))
    if pooling == "mean":
        return [sequence.mean(dim=0) for sequence in sequences]
    if pooling == "max":
        return [sequence.amax(dim=0) for sequence in sequences]
    # Positions count from 0, SGPT's weights from 1.
    weights = (batch.positions + 1).to(states.dtype).split(list(batch.lengths))
    return [
        (sequence.movedim(0, -1) * weight).sum(dim=-1) / weight.sum()
        for weight, sequence in zip(weights, sequences, strict=True)
    ]


def pair_blocks(u: Any, v: Any) -> list[Any]:
    """Return the features of a pair of unit vectors (..., D), in blocks: u, v, |u - v|, uv and the cosine.

    The first three are Sentence-BERT's (Reimers and Gurevych 2019, section 3), the fourth InferSent's. The cosine
    (..., 1) is the sum of the fourth; a layer trained on few pairs would not learn this sum. Arrays may be numpy's or
    torch's, so that training and decoding share the code.

    >>> import numpy as np
    >>> [block.tolist() for block in pair_blocks(np.array([1.0, 0.0]), np.array([0.6, 0.8]))]
    [[1.0, 0.0], [0.6, 0.8], [0.4, 0.8], [0.6, 0.0], [0.6]]
    """
    product = u * v
    return [u, v, abs(u - v), product, product.sum(-1)[..., None]]
