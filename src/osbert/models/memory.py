"""Memory: cached layer inputs of the text before a batch, for each stream of a corpus (Transformer-XL).

Dai et al. 2019, section 3.2: a layer also has keys and values for the last M tokens before a sequence. Their states are
cached, and receive no gradient. `Continuation` joins a batch to them: a layer has keys for the remembered and the
present tokens, sequence by sequence, and queries for the present ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from osbert.data.batch import TOKEN_COLUMNS, Batch
from osbert.data.example import begins, ranges

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


class Continuation:
    """A batch of N tokens and its past of P tokens.

    `batch`: both together, P + N tokens; of remembered tokens it holds positions only. `present` (N,): the indices of
    the batch's own tokens in it. `remembered` (K,): the indices of the tokens that the next sequences will remember, at
    most `past.most` of each sequence; `lengths` (B,): their number. Unseen tokens are not remembered.
    """

    def __init__(self, batch: Batch, past: Past) -> None:
        self.past = past
        device = batch.ids.device
        new_lengths, before = np.array(batch.lengths, np.int64), np.array(past.lengths, np.int64)
        remembered = int(before.sum())
        # Of [past, present] end to end, alternate: past of sequence 0, sequence 0, past of sequence 1, ...
        starts = np.stack([begins(before), remembered + begins(new_lengths)], axis=1).ravel()
        # An index for every token: one gather then joins any column or any layer's rows.
        source = ranges(
            starts, np.stack([before, new_lengths], axis=1).ravel()
        )  # (P + N,), of the rows [past, present]
        self.source = torch.from_numpy(source).to(device)
        self.present = torch.from_numpy(np.flatnonzero(source >= remembered)).to(device)
        lengths = before + new_lengths
        # Positions count from the first remembered token. Order -1 lets every query attend to all remembered tokens.
        past_positions = torch.from_numpy(ranges(np.zeros_like(before), before)).to(device)
        shift = torch.from_numpy(np.repeat(before, new_lengths)).to(device)
        first = {"positions": past_positions, "order": torch.full_like(past_positions, -1)}
        columns: dict[str, Any] = {
            name: self._interleave(first.get(name, torch.zeros_like(past_positions)), column)
            for name in TOKEN_COLUMNS
            # Positions of the present tokens continue after the past of their sequence.
            if (column := batch.positions + shift if name == "positions" else getattr(batch, name)) is not None
        }
        self.batch = Batch(
            **{"order": None, **columns},
            lengths=tuple(lengths.tolist()),
            starts=torch.from_numpy(begins(lengths)).to(device),
            records=batch.records,
        )
        # Unseen tokens are not remembered.
        unseen = self.batch.unseen
        seen = torch.ones(int(lengths.sum()), dtype=torch.bool) if unseen is None else ~unseen.cpu()
        splits = (column.split(lengths.tolist()) for column in (torch.arange(len(seen)), seen))
        # Flipped, cut and flipped back: the last `most`. A negative slice would return all of them for most = 0.
        chosen = [indices[mask].flip(0)[: past.most].flip(0) for indices, mask in zip(*splits, strict=True)]
        self.remembered, self.lengths = torch.cat(chosen).to(device), tuple(map(len, chosen))

    def rows(self, layer: int, hidden: Tensor) -> Tensor:
        """Return the input rows (P + N, D) of a layer: those of the past, and its input `hidden` (N, D)."""
        past = self.past.layers[layer]
        return hidden if not len(past) else self._interleave(past, hidden)

    def next(self, layers: Sequence[Tensor]) -> Past:
        """Return the past of the next sequences, from the input rows (P + N, D) of each layer, without gradient."""
        return Past(
            layers=[rows.detach().index_select(0, self.remembered) for rows in layers],
            lengths=self.lengths,
            most=self.past.most,
        )

    def _interleave(self, past: Tensor, present: Tensor) -> Tensor:
        """Return the rows (P + N, ...) of both, each sequence's past before its present."""
        return torch.cat([past.to(present.dtype), present]).index_select(0, self.source)
