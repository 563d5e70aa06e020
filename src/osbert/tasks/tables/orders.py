"""Pairs that are read in both orders, for tasks in which their order says nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.tasks import Record
from osbert.tasks.explained import Weights
from osbert.tasks.tables.texts import TextTask


@dataclass(frozen=True, kw_only=True)
class OrdersTask(TextTask):
    """A task on texts or pairs whose head can add the states of a pair in both orders."""

    both_orders: bool = False
    """Read every pair in both orders and add the two states before the task's layer, for pairs whose order says nothing
    (GPT's similarity, Radford et al. 2018, figure 1: MRPC, QQP, STS-B). It takes twice the time."""

    def __post_init__(self) -> None:
        """Refuse windows in both orders."""
        super().__post_init__()
        if self.both_orders and self.long == "window":
            raise ValueError("both_orders reads a pair as two sequences: take another --long than window")

    @property
    def batching(self) -> Literal["sequences", "records", "step"]:  # type: ignore[override]
        """Return that the two orders of a pair stay in one pass."""
        return "records" if self.both_orders else "sequences"

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the one sequence of a text or a pair, its windows, or those of a pair in both orders."""
        examples = super().encode(record, packer)
        if not self.both_orders:
            return examples
        if len(record.texts) != 2:
            raise UserError(
                f"{record.place}: --both-orders is for pairs of texts, but there is one text. Leave it out.",
                code="wrong-number-of-texts",
            )
        [other] = super().encode(dataclasses.replace(record, texts=record.texts[::-1]), packer)
        return [*examples, dataclasses.replace(other, truncated=0)]  # what is cut is told once

    def aimed(self, examples: Sequence[Example], label: Any, weight: Any = None) -> list[Example]:
        """Return the sequences of a record with its label; of a pair in both orders the first one carries it."""
        carrying = 1 if self.both_orders else len(examples)
        return [*super().aimed(examples[:carrying], label, weight), *examples[carrying:]]

    def joined(self, outputs: Sequence[NDArray[np.floating]], **options: Any) -> Any:
        """Return the mean of outputs over windows, or their sum over the two orders; `options` are numpy's."""
        return (np.sum if self.both_orders else np.mean)(outputs, **options)

    def shared(self, weights: Weights, examples: Sequence[Example]) -> list[Weights]:
        """Return the weights (K,) of joined outputs as those of each sequence's own."""
        return [weights if self.both_orders else weights / len(examples)] * len(examples)
