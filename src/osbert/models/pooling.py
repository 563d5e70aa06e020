"""One vector a sequence from its tokens' states: the first's, mean, highest, weighted mean; what two say of a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from osbert.data.batch import Batch

Pooling = Literal["cls", "mean", "max", "weighted"]
"""cls: the summary's state. mean and max: over all tokens, [CLS] and [SEP] included. weighted: a mean in which the
token at place i (from 1) weighs i, the position-weighted mean of SGPT (Muennighoff 2022, section 3.1.1), made for
models that look left."""


def pooled(states: Tensor, batch: Batch, pooling: Pooling, summaries: Tensor) -> list[Tensor]:
    """Return a vector (..., D) for each of the B sequences from the states (N, ..., D) of their tokens.

    `summaries` (B,): the token that stands for each sequence (`Backbone.summaries`).
    """
    if pooling == "cls":
        return list(states[summaries].unbind())
    sequences = states.split(list(batch.lengths))
    if pooling == "mean":
        return [sequence.mean(dim=0) for sequence in sequences]
    if pooling == "max":
        return [sequence.amax(dim=0) for sequence in sequences]
    weights = (batch.positions + 1).to(states.dtype).split(list(batch.lengths))
    return [
        (sequence.movedim(0, -1) * weight).sum(dim=-1) / weight.sum()
        for weight, sequence in zip(weights, sequences, strict=True)
    ]


def pair_blocks(u: Any, v: Any) -> list[Any]:
    """Return what two vectors (..., D) of length 1 say of a pair of texts, in blocks: u, v, |u - v|, uv and the cosine.

    The first three are Sentence-BERT's (Reimers and Gurevych 2019, section 3), the fourth InferSent's. The cosine, the
    sum of the fourth, is a block of its own, (..., 1): a layer that learns from few pairs would not find that sum.
    Arrays may be numpy's or torch's, so that training and decoding compute the same.

    >>> import numpy as np
    >>> [block.tolist() for block in pair_blocks(np.array([1.0, 0.0]), np.array([0.6, 0.8]))]
    [[1.0, 0.0], [0.6, 0.8], [0.4, 0.8], [0.6, 0.0], [0.6]]
    """
    product = u * v
    return [u, v, abs(u - v), product, product.sum(-1)[..., None]]
