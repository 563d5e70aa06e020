"""Weights of labels in the loss: balanced by the training rows, given by label, or listed in the order of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from osbert.errors import UserError, nearest
from osbert.tasks.tables.labels import list_labels
from osbert.tasks.tables.texts import TextTask

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
