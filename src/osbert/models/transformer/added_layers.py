"""Modules that a Transformer gets beside its own: adapters in its blocks, and recurrent layers on top.

Adapters (Houlsby et al. 2019): two small modules in each block are trained; the encoder around them is frozen. Each
follows a sublayer, before the residual sum: x + W_up f(W_down x), from the width to a bottleneck and back. W_up starts
at 0, so new adapters do not change the encoder. As in the paper, the norms of the blocks are trained as well.
Recurrent layers: a bidirectional LSTM over the states of each sequence (section 5.1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
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
            packed = pack_sequence(hidden.float().split(list(batch.lengths)), enforce_sorted=False)
            mixed, _ = self.lstm(packed)
        return self.dropout(torch.cat(unpack_sequence(mixed)))
