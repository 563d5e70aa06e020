"""Memory: cached layer inputs of the text before a batch, for each stream of a corpus (Transformer-XL).

Dai et al. 2019, section 3.2: a layer also has keys and values for the last M tokens before a sequence. Their states are
cached, and receive no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

TURNS = 2
"""Cached records of each stream: the last one and the one before it, so that a step can be repeated."""


@dataclass(frozen=True, kw_only=True)
class Past:
    """The remembered tokens of B sequences.

    `layers`: the inputs (P, D) of each layer, for P tokens, end to end in the order of the sequences. `lengths` (B,):
    the number of remembered tokens of each sequence. `most`: the largest number that a sequence may remember.
    """

    layers: Sequence[Tensor]
    lengths: tuple[int, ...]
    most: int


class Memory(nn.Module):
    """The pasts of the streams of training and of evaluation.

    Those of training are buffers, which a checkpoint holds; those of evaluation are emptied whenever it begins.
    `length` may be changed before an evaluation; in training it is the length of the buffers.
    """

    def __init__(self, *, streams: int, layers: int, length: int, width: int) -> None:
        """Start with empty pasts; see `StreamStates`."""
        super().__init__()
        self.streams, self.layers, self.length, self.width = streams, layers, length, width
        self.kept = self._empty()
        self._held: StreamStates | None = None

    def train(self, mode: bool = True) -> Memory:
        """Switch between training and evaluation, which starts with empty pasts."""
        self._held = None
        return super().train(mode)

    def of(self, records: Tensor) -> Past:
        """Return the past of the sequences of `records` (B,); empty if the stream's previous record is not cached."""
        return self._current().of(records, self.length)

    def keep(self, records: Tensor, past: Past) -> None:
        """Cache the past of the next records of the streams."""
        self._current().keep(records, past)

    def _empty(self) -> StreamStates:
        return StreamStates(streams=self.streams, layers=self.layers, length=self.length, width=self.width)

    def _current(self) -> StreamStates:
        if self.training:
            return self.kept
        if self._held is None:
            # Bypasses nn.Module.__setattr__: not a submodule, so no part of the state dict.
            object.__setattr__(self, "_held", self._empty().to(self.kept.states.device))
        assert self._held is not None
        return self._held


class StreamStates(nn.Module):
    """The states of the last tokens of S streams, for L layers.

    Record r belongs to stream r mod S and continues record r - S. If record r - S is not one of the last two cached
    ones of the stream, r has no past. So shuffled records remember nothing, and a step can be repeated.

    `states` (2, S, L, M, D), indexed by the parity of r // S; `counts` (2, S): how many of the M are filled; `records`
    (2, S): the record that the states belong to, -1 for none.
    """

    states: Tensor
    counts: Tensor
    records: Tensor

    def __init__(self, *, streams: int, layers: int, length: int, width: int) -> None:
        """Allocate room for `length` = M tokens a stream."""
        super().__init__()
        self.register_buffer("states", torch.zeros(TURNS, streams, layers, length, width, dtype=torch.float32))
        self.register_buffer("counts", torch.zeros(TURNS, streams, dtype=torch.int64))
        self.register_buffer("records", torch.full((TURNS, streams), -1, dtype=torch.int64))

    def of(self, records: Tensor, most: int) -> Past:
        """Return the past of the sequences of `records` (B,)."""
        turn, stream = self._places(records - self.records.shape[1])
        is_stored = self.records[turn, stream] == records - self.records.shape[1]
        # A slot that holds another record counts as empty.
        counts = self.counts[turn, stream] * is_stored
        states = self.states[turn, stream].transpose(0, 1)  # (L, B, M, D)
        filled = _mask_columns(counts, states.shape[2])
        return Past(layers=[layer[filled] for layer in states], lengths=tuple(counts.tolist()), most=most)

    def keep(self, records: Tensor, past: Past) -> None:
        """Cache the last tokens of the sequences of `records` (B,)."""
        turn, stream = self._places(records)
        counts = torch.tensor(past.lengths, device=records.device)
        states = self.states.new_zeros(len(past.layers), len(records), *self.states.shape[3:])
        filled = _mask_columns(counts, states.shape[2])
        for layer, rows in zip(states, past.layers, strict=True):
            # A step with non-finite states is skipped by the trainer; its states must not affect the following steps.
            layer[filled] = torch.nan_to_num(rows.to(layer.dtype), nan=0.0, posinf=0.0, neginf=0.0)
        self.states[turn, stream] = states.transpose(0, 1)
        self.counts[turn, stream] = counts
        self.records[turn, stream] = records

    def _places(self, records: Tensor) -> tuple[Tensor, Tensor]:
        """Return the slot (0 or 1) and the stream of `records`, each (B,)."""
        streams = self.records.shape[1]
        return records.div(streams, rounding_mode="floor") % TURNS, records % streams


def _mask_columns(counts: Tensor, most: int) -> Tensor:
    """Return a mask (B, `most`), True in the first `counts` (B,) columns."""
    return torch.arange(most, device=counts.device) < counts[:, None]
