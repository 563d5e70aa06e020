"""Continuation: a batch after the remembered tokens of its sequences (Transformer-XL, Dai et al. 2019, section 3.2).

A layer has keys for the remembered and the present tokens, sequence by sequence, and queries for the present ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osbert.data.batch import TOKEN_COLUMNS, Batch
from osbert.data.ragged import Places, begins, ranges
from osbert.models.memory import Past


class Continuation:
    """A batch of N tokens and its past of P tokens.

    `batch`: both together, P + N tokens; of remembered tokens it holds positions only. `present` (N,): the indices of
    the batch's own tokens in it. `remembered` (K,): the indices of the tokens that the next sequences will remember, at
    most `past.most` of each sequence; `lengths` (B,): their number. Unseen tokens are not remembered.
    """

    def __init__(self, batch: Batch, past: Past) -> None:
        """Join each sequence to its past."""
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
        self.remembered, self.lengths = self._last(lengths)

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

    def _last(self, lengths: Places) -> tuple[Tensor, tuple[int, ...]]:
        """Return the indices (K,) of the last seen tokens of each sequence, and their number for each sequence (B,)."""
        unseen = self.batch.unseen
        seen = torch.ones(int(lengths.sum()), dtype=torch.bool) if unseen is None else ~unseen.cpu()
        columns = (column.split(lengths.tolist()) for column in (torch.arange(len(seen)), seen))
        # Flipped, cut and flipped back: the last `most`. A negative slice would return all of them for most = 0.
        chosen = [indices[mask].flip(0)[: self.past.most].flip(0) for indices, mask in zip(*columns, strict=True)]
        return torch.cat(chosen).to(self.batch.ids.device), tuple(map(len, chosen))
