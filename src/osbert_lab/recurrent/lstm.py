"""LSTM layers over the flat tokens of a batch: projected, with clipping, in one direction or both."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from osbert.data.batch import Batch
from osbert.models.fast.dropout import Dropout
from osbert_lab.recurrent.bilm_architecture import BilmArchitecture


class Steps(NamedTuple):
    """The order in which a recurrent layer reads the N tokens of a batch, from the left and from the right.

    `forth`, `back` (N,): token indices by step, within a step those of the longest sequences first. `sizes` (T,): the
    number of sequences in each step, on the CPU.
    """

    forth: Tensor
    back: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the steps of a batch."""
        lengths = np.array(batch.lengths)
        # Rank of each sequence by length, longest first: PackedSequence needs this order within a step.
        ranks = np.empty_like(lengths)
        ranks[np.argsort(-lengths, kind="stable")] = np.arange(len(lengths))
        sequence, lasts = np.repeat(ranks, lengths), np.repeat(np.cumsum(lengths), lengths) - 1
        behind = lasts - np.arange(lengths.sum())  # number of tokens after each one in its sequence
        before = np.repeat(lengths, lengths) - 1 - behind
        # lexsort sorts by its last key first: by step, then by rank.
        forth, back = (torch.from_numpy(np.lexsort((sequence, steps))) for steps in (before, behind))
        device = batch.ids.device
        return cls(forth.to(device), back.to(device), torch.from_numpy(np.bincount(before)))


class ProjectedLSTM(nn.Module):
    """(N, P) -> (N, P): one layer in one direction, its cells projected to the states (Sak et al. 2014, section 2)."""

    def __init__(self, width: int, cells: int, clip: float) -> None:
        """Make a layer of width P; `clip`: largest absolute value of cells and states, 0 for no limit."""
        super().__init__()
        self.lstm = nn.LSTM(width, cells, proj_size=width)
        self.clip = clip

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise the weights as torch does; biases of forget gates are 1, others 0, as in bilm-tf."""
        self.lstm.reset_parameters()
        # torch orders gates as input, forget, cell, output; the second rows of 4 are the forget gate's.
        inward, _ = (self.lstm.get_parameter(f"bias_{part}_l0").zero_() for part in ("ih", "hh"))
        inward[self.lstm.hidden_size : 2 * self.lstm.hidden_size] = 1

    def forward(self, values: Tensor, order: Tensor, sizes: Tensor) -> Tensor:
        """Return the states (N, P) of tokens (N, P), read in `order` (N,) with steps of `sizes` (T,)."""
        states = (
            self._run_clipped(values[order], sizes)
            if self.clip
            else self.lstm(PackedSequence(values[order], sizes))[0].data
        )
        # The inverse permutation: row i of `states` belongs to token order[i].
        return torch.empty_like(states).index_copy(0, order, states)

    def _run_clipped(self, values: Tensor, sizes: Tensor) -> Tensor:
        """Return the states (N, P) in the order of reading, with clipping, which torch's LSTM lacks."""
        weights = {name.removesuffix("_l0"): weight for name, weight in self.lstm.named_parameters()}
        # The input part of all gates of all tokens in one product; only the recurrent part needs the loop.
        gates = functional.linear(values, weights["weight_ih"], weights["bias_ih"] + weights["bias_hh"])  # (N, 4 cells)
        state = values.new_zeros(int(sizes[0]), self.lstm.proj_size)
        cell = values.new_zeros(int(sizes[0]), self.lstm.hidden_size)
        states = []
        for step in gates.split(sizes.tolist()):  # shorter sequences, the last rows, have ended
            recurrent = functional.linear(state[: len(step)], weights["weight_hh"])
            into, forget, new, out = (step + recurrent).chunk(4, 1)
            cell = forget.sigmoid() * cell[: len(step)] + into.sigmoid() * new.tanh()
            cell = cell.clamp(-self.clip, self.clip)
            state = functional.linear(out.sigmoid() * cell.tanh(), weights["weight_hr"]).clamp(-self.clip, self.clip)
            states.append(state)
        return torch.cat(states)


class DirectionsLayer(nn.Module):
    """(N, D) -> (N, D): a left-to-right layer on the first half of the states, a right-to-left one on the second."""

    def __init__(self, sizes: BilmArchitecture, *, residual: bool) -> None:
        """Make both layers; `residual`: whether the input is added to the output."""
        super().__init__()
        self.forth = ProjectedLSTM(sizes.side, sizes.cells, sizes.clip)
        self.back = ProjectedLSTM(sizes.side, sizes.cells, sizes.clip)
        self.dropout = Dropout(sizes.dropout)
        self.residual = residual

    def forward(self, hidden: Tensor, steps: Steps) -> Tensor:
        """Return the states (N, D), always in float32: rounding errors would accumulate over the tokens."""
        with torch.autocast(hidden.device.type, enabled=False):
            left, right = self.dropout(hidden.float()).chunk(2, 1)
            states = torch.cat(
                [self.forth(left, steps.forth, steps.sizes), self.back(right, steps.back, steps.sizes)], 1
            )
            return states + torch.cat([left, right], 1) if self.residual else states


def both_ends(hidden: Tensor, batch: Batch) -> Tensor:
    """Return a state (B, D) of each sequence whose halves, one of each direction, have both read all of it.

    They are the first half of the last token's state and the second half of the first token's.
    """
    lasts = functional.pad(batch.starts[1:], (0, 1), value=batch.tokens) - 1
    side = hidden.shape[1] // 2
    return torch.cat([hidden[lasts, :side], hidden[batch.starts, side:]], 1)
