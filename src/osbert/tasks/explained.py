"""The scores behind a prediction, which attributions explain: weighted sums of the head's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError, nearest

Weights = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ExplainedScore:
    """A score behind a prediction: the sum of `weights` times the head's outputs.

    `label`: name of the score, such as a class or a type of entities. `text`: the answer, choice or entity with this
    score, "" if the label is enough. `weights`: one array for each of the record's sequences, of the shape of its
    outputs, (K,) or (n, K).
    """

    label: str
    weights: Sequence[Weights]
    text: str = ""

    def of(self, outputs: Sequence[NDArray[np.floating]]) -> float:
        """Return the score for the outputs of the record's sequences."""
        return float(sum((weights * output).sum() for weights, output in zip(self.weights, outputs, strict=True)))


def contrast(chosen: int, count: int) -> Weights:
    """Return the weights (K,) of one output minus the mean of the others.

    >>> contrast(1, 3).tolist()
    [-0.5, 1.0, -0.5]
    """
    weights = np.full(count, -1 / max(count - 1, 1))
    weights[chosen] = 1.0
    return weights


def require_label(label: str, labels: Sequence[str]) -> str:
    """Return `label`. Raises UserError, with the nearest label, if it is not one of `labels`."""
    if label in labels:
        return label
    first_labels = ", ".join(labels[:20])
    raise UserError(
        f"There is no label '{label}' that could be explained: there are {first_labels}.{nearest(label, labels)}",
        code="unknown-label",
    )
