"""The common part of n-way choice: a context with its choices, and predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from osbert.tasks import Prediction, Record

__all__ = ["ChoicePrediction", "Choices", "Counting", "names"]

Counting = Literal["0", "1", "A", "text"]
"""The name of the first choice; the others follow. With "text" labels are texts of choices, which count from 0."""


@dataclass(frozen=True, kw_only=True)
class Choices(Record):
    """A context and its choices, which are its `texts`; `label` is the right one's name.

    `names`: the name of each choice.
    """

    names: tuple[str, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the choices, without the context before them."""
        return self.texts[1:]


@dataclass(frozen=True, kw_only=True)
class ChoicePrediction(Prediction):
    """The choice of a model: `value` is the choice's name, `choice` its text, `probabilities` of all by name."""

    choice: str
    choices: tuple[str, ...] = ()

    def above(self, threshold: float) -> tuple[Prediction, int]:
        """Drop the choice if it is less probable than a threshold; return the prediction and 1 if it was dropped."""
        prediction, withheld = super().above(threshold)
        return (replace(self, value=None, choice=""), 1) if withheld else (prediction, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "prediction": self.value,
            "choice": self.choice,
            "probabilities": dict(self.probabilities),
            "truncated": self.truncated,
        }

    def lines(self) -> list[str]:
        """Return the name of the choice, followed by all choices, most probable first."""
        rows = sorted(zip(self.probabilities.items(), self.choices), key=lambda row: -row[0][1])
        return [str(self.value), *(f"  {probability:7.2%}  {name}  {text}" for (name, probability), text in rows)]


def names(count: int, counting: Counting) -> tuple[str, ...]:
    """Return the names of a number of choices."""
    if counting == "A":
        return tuple(chr(ord("A") + index) for index in range(count))
    first = 0 if counting == "text" else int(counting)
    return tuple(str(index + first) for index in range(count))
