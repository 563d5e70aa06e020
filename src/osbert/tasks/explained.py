"""What can be explained of a prediction: the scores that it rests on, as weighted sums of the head's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError, nearest

Weights = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ExplainedScore:
    """A score that a prediction rests on: the sum of `weights` times the head's outputs.

    `label`: what the score is of, such as a class or a type of entities. `text`: the answer, choice or entity that has
    this score, "" where the label says all. `weights`: for each of the record's sequences, of the shape of its outputs,
    (K,) or (n, K).
    """

    label: str
    weights: Sequence[Weights]
    text: str = ""

    def of(self, outputs: Sequence[NDArray[np.floating]]) -> float:
        """Return the score for the outputs of the record's sequences."""
        return float(sum((own * output).sum() for own, output in zip(self.weights, outputs, strict=True)))


def contrast(chosen: int, count: int) -> Weights:
    """Return the weights (K,) of one output minus the mean of the others.

    >>> contrast(1, 3).tolist()
    [-0.5, 1.0, -0.5]
    """
    weights = np.full(count, -1 / max(count - 1, 1))
    weights[chosen] = 1.0
    return weights


def require_label(label: str, labels: Sequence[str]) -> str:
    """Return a label. Raises UserError, with the nearest one, if it is none of the labels."""
    if label in labels:
        return label
    shown = ", ".join(labels[:20])
    raise UserError(
        f"There is no label '{label}' that could be explained: there are {shown}.{nearest(label, labels)}",
        code="unknown-label",
    )
