"""Recurrent layers on top of an encoder: a bidirectional LSTM over the states of each sequence (section 5.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from osbert.data.batch import Batch
from osbert.models.fast.dropout import Dropout


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
