"""One vector a sequence from the states of its tokens: the first's, the mean, the highest, or a weighted mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

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
