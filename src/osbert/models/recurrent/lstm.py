"""LSTM layers over the flat run of a batch: projected, with limits on cells and states, in one direction or in both."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from osbert.data.batch import Batch
from osbert.models.bilm_architecture import BilmArchitecture
from osbert.models.fast.dropout import Dropout


class Steps(NamedTuple):
    """In which order a recurrent layer reads the N tokens of a batch, from the left and from the right.

    `forth`, `back` (N,): the tokens, step by step, of each step those of the longest sequences first. `sizes` (T,): how
    many sequences each step has, on the CPU.
    """

    forth: Tensor
    back: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the order in which the tokens of a batch are read."""
        lengths = np.array(batch.lengths)
        ranks = np.empty_like(lengths)
        ranks[np.argsort(-lengths, kind="stable")] = np.arange(len(lengths))
        sequence, lasts = np.repeat(ranks, lengths), np.repeat(np.cumsum(lengths), lengths) - 1
        behind = lasts - np.arange(lengths.sum())  # tokens of the sequence behind each token
        before = np.repeat(lengths, lengths) - 1 - behind
        forth, back = (torch.from_numpy(np.lexsort((sequence, steps))) for steps in (before, behind))
        device = batch.ids.device
        return cls(forth.to(device), back.to(device), torch.from_numpy(np.bincount(before)))


class ProjectedLSTM(nn.Module):
    """(N, P) -> (N, P): one layer in one direction, its cells projected to the states (Sak et al. 2014, section 2)."""

    def __init__(self, width: int, cells: int, clip: float) -> None:
        """Make a layer of a width P; `clip`: the limit on cells and states, 0 for none."""
        super().__init__()
        self.lstm = nn.LSTM(width, cells, proj_size=width)
        self.clip = clip

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw the weights as torch does; the biases of forget gates start at 1, the others at 0, as in bilm-tf."""
        self.lstm.reset_parameters()
        inward, _ = (self.lstm.get_parameter(f"bias_{part}_l0").zero_() for part in ("ih", "hh"))
        inward[self.lstm.hidden_size : 2 * self.lstm.hidden_size] = 1

    def forward(self, values: Tensor, order: Tensor, sizes: Tensor) -> Tensor:
        """Return the states (N, P) of tokens (N, P), read in an `order` (N,) whose steps have `sizes` (T,)."""
        found = (
            self._clipped(values[order], sizes)
            if self.clip
            else self.lstm(PackedSequence(values[order], sizes))[0].data
        )
        return torch.empty_like(found).index_copy(0, order, found)

    def _clipped(self, values: Tensor, sizes: Tensor) -> Tensor:
        """Return the states (N, P), in the order of reading; torch's LSTM has no limits on its cells."""
        weights = {name.removesuffix("_l0"): weight for name, weight in self.lstm.named_parameters()}
        gates = functional.linear(values, weights["weight_ih"], weights["bias_ih"] + weights["bias_hh"])  # (N, 4 cells)
        state = values.new_zeros(int(sizes[0]), self.lstm.proj_size)
        cell = values.new_zeros(int(sizes[0]), self.lstm.hidden_size)
        found = []
        for step in gates.split(sizes.tolist()):  # shorter sequences have ended: they are the last rows
            recurrent = functional.linear(state[: len(step)], weights["weight_hh"])
            into, forget, new, out = (step + recurrent).chunk(4, 1)
            cell = forget.sigmoid() * cell[: len(step)] + into.sigmoid() * new.tanh()
            cell = cell.clamp(-self.clip, self.clip)
            state = functional.linear(out.sigmoid() * cell.tanh(), weights["weight_hr"]).clamp(-self.clip, self.clip)
            found.append(state)
        return torch.cat(found)


class DirectionsLayer(nn.Module):
    """(N, D) -> (N, D): a layer from the left on the first half of the states, one from the right on the second."""

    def __init__(self, sizes: BilmArchitecture, *, residual: bool) -> None:
        """Make both layers; `residual`: whether what they read is added to what they give."""
        super().__init__()
        self.forth = ProjectedLSTM(sizes.side, sizes.cells, sizes.clip)
        self.back = ProjectedLSTM(sizes.side, sizes.cells, sizes.clip)
        self.dropout = Dropout(sizes.dropout)
        self.residual = residual

    def forward(self, hidden: Tensor, steps: Steps) -> Tensor:
        """Return the states (N, D), in float32 at any precision: rounding would add up from token to token."""
        with torch.autocast(hidden.device.type, enabled=False):
            left, right = self.dropout(hidden.float()).chunk(2, 1)
            found = torch.cat(
                [self.forth(left, steps.forth, steps.sizes), self.back(right, steps.back, steps.sizes)], 1
            )
            return found + torch.cat([left, right], 1) if self.residual else found
