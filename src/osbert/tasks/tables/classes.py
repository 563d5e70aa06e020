"""Tasks whose labels are classes: labels in messages, their weights in the loss, and the softmax's temperature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from osbert.errors import Problems, UserError, nearest
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.calibration import Calibration, calibrate, columns
from osbert.tasks.tables.texts import TextTask
from osbert.terminal import one_line

LISTED = 10
"""Most labels that a message lists."""


def list_labels(labels: Sequence[str]) -> str:
    """Return the first labels, and how many more there are.

    >>> list_labels(["a", "b"]), list_labels([*"abcdefghijkl"])
    ('a, b', 'a, b, c, d, e, f, g, h, i, j and 2 more')
    """
    first_labels = one_line(", ".join(labels[:LISTED]))
    return first_labels if len(labels) <= LISTED else f"{first_labels} and {len(labels) - LISTED} more"


def note_unknown(label: str, known: Sequence[str], *, location: str, problems: Problems) -> None:
    """Report a label that was not seen in training, with the most similar known one."""
    problems.add(
        f"{location}: unknown label '{one_line(label)}' (known: "
        f"{list_labels(known)}).{one_line(nearest(label, known))}",
        code="unknown-label",
    )


GIVEN = ("none", "balanced")


@dataclass(frozen=True, kw_only=True)
class WeightedTask(TextTask):
    """A task whose labels may have different weights in the loss."""

    class_weights: str = "none"
    """balanced: all classes have the same total weight in the loss; or weights by label, spam=3,ham=0.5, and 1 for
    other labels. With multilabel this is the weight of the rows that have a label; balanced gives them the same total
    weight as the rows without it."""
    weights: tuple[float, ...] = ()
    """The weight of each label in the loss; computed or completed if class_weights is given."""

    def __post_init__(self) -> None:
        """Raise ValueError for weights that are not above 0, and for an invalid table of weights."""
        super().__post_init__()
        table = {} if self.class_weights in GIVEN else weight_table(self.class_weights)
        wrong = [weight for weight in (*self.weights, *table.values()) if not 0 < weight < math.inf]
        if wrong:
            raise ValueError(f"weights must be above 0, not {wrong[0]:g}")

    def label_weights(self, labels: Sequence[str], balanced: Sequence[float]) -> tuple[float, ...]:
        """Return the weights of labels, () if all are equal; `balanced`: the weights computed from the rows.

        Raises UserError if there is not one weight per label, if weights are set twice, and for unknown labels.
        """
        weights = self.weights
        if weights and self.class_weights != "none":
            raise UserError(
                f"--class-weights {self.class_weights} says the weights that --weights gives: say only one of the two.",
                code="options-exclude-each-other",
            )
        if weights and len(weights) != len(labels):
            raise UserError(
                f"--weights has {len(weights)} numbers, but there are {len(labels)} labels: give one for each of "
                f"{list_labels(labels)}, in this order.",
                code="wrong-number-of-values",
            )
        if self.class_weights in GIVEN:
            return tuple(balanced) if self.class_weights == "balanced" else weights
        table = weight_table(self.class_weights)
        if unknown := [name for name in table if name not in labels]:
            raise UserError(
                f"--class-weights: there is no label '{unknown[0]}' (there are {list_labels(labels)})."
                f"{nearest(unknown[0], labels)}",
                code="unknown-label",
            )
        return tuple(table.get(label, 1.0) for label in labels)


def weight_table(text: str) -> dict[str, float]:
    """Parse weights by label.

    Raises ValueError if the text is no such table, or names a label twice.

    >>> weight_table("spam=3, a=b=0.5")
    {'spam': 3.0, 'a=b': 0.5}
    """
    table: dict[str, float] = {}
    for part in text.split(","):
        # rpartition: names of labels may contain "=".
        name, _, number = (cell.strip() for cell in part.rpartition("="))
        if name in table:
            raise ValueError(f"class_weights gives '{name}' two weights: '{text}'")
        try:
            table[name] = float(number)
        except ValueError:
            # An empty name leads to the one error message below.
            name = ""
        if not name:
            raise ValueError(f"class_weights is none, balanced, or weights by label (spam=3,ham=0.5), not '{text}'")
    return table


@dataclass(frozen=True, kw_only=True)
class TemperedTask(Task):
    """A task with one label out of several, whose softmax has a temperature."""

    temperature: float = 0.0
    """Divisor of the logits before the softmax, so that confidence matches accuracy; 0 to fit it to the development
    rows, 1 for the plain softmax."""

    def __post_init__(self) -> None:
        """Raise ValueError for a temperature below 0."""
        super().__post_init__()
        if not 0 <= self.temperature < inf:
            raise ValueError(f"temperature must be above 0, or 0 to have it fitted, not {self.temperature:g}")

    def softmax(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the softmax of scores (K,) at the task's temperature, 1 if it is not fitted yet."""
        # Subtracting the maximum avoids overflow; `or 1`: 0 means not fitted.
        exponentials = np.exp((scores - scores.max()) / (self.temperature or 1))
        return exponentials / exponentials.sum()

    def tune(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        """Return the task with the temperature fitted to the records, and the calibration.

        No calibration if a temperature was given, there are too few rows, or the probabilities are not the model's.
        """
        calibration_data = columns(predictions, records) if self.weighed and not self.temperature else None
        calibration = calibrate(*calibration_data) if calibration_data else None
        temperature = calibration.temperature if calibration else self.temperature or 1.0
        return replace(self, temperature=temperature), calibration

    def export_metadata(self) -> dict[str, Any]:
        """Return the factor of the logits, 1 / temperature, as "scale"."""
        return {"scale": 1 / (self.temperature or 1)}
