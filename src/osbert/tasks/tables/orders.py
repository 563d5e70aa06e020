"""Pairs as two sequences: in both orders, or each text by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.models.pooling import pair_blocks
from osbert.tasks import Prediction, Record
from osbert.tasks.edges import Weights
from osbert.tasks.tables.texts import TextTask


@dataclass(frozen=True, kw_only=True)
class OrdersTask(TextTask):
    """A task on texts or pairs, whose head can add the states of both orders of a pair, or compare its two texts."""

    both_orders: bool = False
    """Read every pair in both orders and add the two states before the task's layer, for pairs without a meaningful
    order (GPT's similarity, Radford et al. 2018, figure 1: MRPC, QQP, STS-B). It takes twice the time."""
    apart: bool = False
    """Encode each text of a pair by itself; the task's layer gets their vectors u and v, |u - v|, uv and their
    cosine (Reimers and Gurevych 2019, section 3): for encoders that were trained for sentence vectors."""

    def __post_init__(self) -> None:
        """Raise ValueError for both settings together, or either with windows."""
        super().__post_init__()
        if self.both_orders and self.apart:
            raise ValueError("both_orders and apart are two ways to read a pair: give one of the two")
        if self._two and self.long == "window":
            name = "apart" if self.apart else "both_orders"
            raise ValueError(f"{name} reads a pair as two sequences: take another --long than window")

    @property
    def _two(self) -> bool:
        """Return whether a record has two sequences."""
        return self.both_orders or self.apart

    @property
    def batching(self) -> Literal["sequences", "records", "step"]:  # type: ignore[override]
        """Return "records" if a pair has two sequences, which must stay in one pass."""
        return "records" if self._two else "sequences"

    def by_vectors(self, records: Sequence[Record]) -> Self:
        """Return the task with `apart`; unchanged for single texts, both orders or windows."""
        if self._two or self.long == "window" or any(len(record.texts) != 2 for record in records):
            return self
        return self.source.attach_to(dataclasses.replace(self, apart=True))

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the one sequence of a text or a pair, its windows, or the two of a pair in both orders or apart."""
        if not self._two:
            return super().encode(record, packer)
        if len(record.texts) != 2:
            option = "--apart" if self.apart else "--both-orders"
            raise UserError(
                f"{record.place}: {option} is for pairs of texts, but this is not two texts. Leave it out.",
                code="wrong-number-of-texts",
            )
        if self.apart:
            # Two sequences of one text each, u first, then v: `decode_with` relies on this order.
            alone = (dataclasses.replace(record, texts=(text,)) for text in record.texts)
            return [example for text_record in alone for example in super(OrdersTask, self).encode(text_record, packer)]
        examples = super().encode(record, packer)
        # No windows here, so the reversed pair is one sequence; a second one would raise.
        [other] = super().encode(dataclasses.replace(record, texts=record.texts[::-1]), packer)
        return [*examples, dataclasses.replace(other, truncated=0)]  # cut pieces count once

    def add_targets(self, examples: Sequence[Example], label: Any, weight: Any = None) -> list[Example]:
        """Return the sequences of a record with its label, which the first sequence of a pair has."""
        # One loss for each pair: the head finds the other sequence by the record.
        carrying = 1 if self._two else len(examples)
        return [*super().add_targets(examples[:carrying], label, weight), *examples[carrying:]]

    def decode_with(self, learnt: Mapping[str, list[Any]]) -> Callable[..., Prediction]:
        """Return `decode`; with `apart` a version that first applies the learnt layer to the two vectors."""
        if not self.apart:
            return super().decode_with(learnt)
        weight, bias = (np.array(learnt[name], np.float64) for name in ("weight", "bias"))  # (K, 4 D + 1), (K,)

        def decode(outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]) -> Prediction:
            # The features of models/heads/apart.py: outputs are the two vectors (2, D).
            u, v = np.asarray(outputs, np.float64)
            return self.decode([weight @ np.concatenate(pair_blocks(u, v)) + bias], record, examples)

        return decode

    def join_outputs(self, outputs: Sequence[NDArray[np.floating]], **options: Any) -> Any:
        """Return the mean of outputs over windows, or their sum over the two orders; `options` are numpy's."""
        # The head adds the two states before its layer, so the outputs of both orders are summed.
        return (np.sum if self.both_orders else np.mean)(outputs, **options)

    def split_weights(self, weights: Weights, examples: Sequence[Example]) -> list[Weights]:
        """Return the weights (K,) of each sequence's outputs, given those of the joined outputs."""
        # The mean over windows divides weights by their number; a sum does not.
        return [weights if self._two else weights / len(examples)] * len(examples)
