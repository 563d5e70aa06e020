"""Modules that a Transformer gets beside its own: adapters in its blocks, and recurrent layers on top.

Adapters (Houlsby et al. 2019): two small modules in each block are trained; the encoder around them is frozen. Each
follows a sublayer, before the residual sum: x + W_up f(W_down x), from the width to a bottleneck and back. W_up starts
at 0, so new adapters do not change the encoder. As in the paper, the norms of the blocks are trained as well.
Recurrent layers: a bidirectional LSTM over the states of each sequence (section 5.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from osbert.data.batch import Batch
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear


class Adapter(nn.Module):
    """(N, D) -> (N, D): a bottleneck with a residual connection."""

    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.down = Linear(width, bottleneck)
        self.activation = nn.GELU()
        self.up = Linear(bottleneck, width)
        self.silence()

    def forward(self, hidden: Tensor) -> Tensor:
        """Return `hidden` (N, D) plus the bottleneck's output."""
        return hidden + self.up(self.activation(self.down(hidden)))

    def silence(self) -> None:
        """Make the adapter the identity: set W_up to 0."""
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)


class Recurrent(nn.Module):
    """(N, D) -> (N, D): LSTM layers with half the width in each direction."""

    def __init__(self, width: int, layers: int, *, inputs: int = 0, dropout: float) -> None:
        """Make `layers` layers of width D with torch's initial weights; `inputs`: the input width if not D, else 0."""
        super().__init__()
        self.lstm = nn.LSTM(inputs or width, width // 2, num_layers=layers, bidirectional=True)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the concatenated states (N, D) of both directions, within each sequence of the batch.

        Always in float32: rounding errors would accumulate over the tokens.
        """
        with torch.autocast(hidden.device.type, enabled=False):
            return self.dropout(run_lstm(self.lstm, hidden.float().split(list(batch.lengths))))


def run_lstm(lstm: nn.LSTM, sequences: Sequence[Tensor]) -> Tensor:
    """Return the states (N, D) of a bidirectional LSTM without dropout, of all tokens of sequences (n, inputs).

    Where a CPU learns it runs step by step: the time of torch's backward pass of packed sequences grows with the square
    of their length there.
    """
    packed = pack_sequence([*sequences], enforce_sorted=False)
    if not packed.data.is_cpu or not torch.is_grad_enabled():
        return torch.cat(unpack_sequence(lstm(packed)[0]))
    sizes = packed.batch_sizes  # (T,): the sequences that have a token t, of which the longest are first
    ranks = torch.cat([torch.arange(size) for size in sizes.tolist()])
    lengths = (sizes[:, None] > torch.arange(int(sizes[0]))).sum(0)  # of each sequence
    steps_left = lengths[ranks] - 1 - torch.arange(len(sizes)).repeat_interleave(sizes)
    mirror = (sizes.cumsum(0) - sizes)[steps_left] + ranks  # (N,): the token as far from the end; its own inverse
    values = packed.data
    for layer in range(lstm.num_layers):
        forward = _run_direction(lstm, f"l{layer}", values, sizes.tolist())
        backward = _run_direction(lstm, f"l{layer}_reverse", values[mirror], sizes.tolist())
        values = torch.cat([forward, backward[mirror]], dim=1)
    return torch.cat(unpack_sequence(packed._replace(data=values)))


def _run_direction(lstm: nn.LSTM, layer: str, values: Tensor, sizes: list[int]) -> Tensor:
    """Return the states (N, D / 2) of one direction of a layer, for values (N, inputs) in the order of steps."""
    input_weight, state_weight, *biases = (
        lstm.get_parameter(f"{name}_{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    inputs = functional.linear(values, input_weight, biases[0] + biases[1])  # of all tokens in one product
    state = cell = values.new_zeros(sizes[0], lstm.hidden_size)
    states = []
    for step in inputs.split(sizes):  # shorter sequences, the last rows, have ended
        gates = torch.addmm(step, state[: len(step)], state_weight.t()).chunk(4, dim=1)
        input_gate, forget_gate, candidate, output_gate = gates
        cell = forget_gate.sigmoid() * cell[: len(step)] + input_gate.sigmoid() * candidate.tanh()
        state = output_gate.sigmoid() * cell.tanh()
        states.append(state)
    return torch.cat(states)
