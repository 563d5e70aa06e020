"""Recurrent layers on top of an encoder: a bidirectional LSTM over the states of each sequence (section 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from osbert.data.batch import Batch
from osbert.models.fast.dropout import Dropout

if TYPE_CHECKING:
    from osbert.models.families.transformer import Architecture


class Recurrent(nn.Module):
    """(N, D) -> (N, D): LSTM layers of half the width in each direction, so that the width stays."""

    def __init__(self, architecture: Architecture, *, inputs: int = 0) -> None:
        """Make as many layers as an architecture asks for, with torch's own first weights.

        `inputs`: numbers that come in for a token, where they are not the width.
        """
        super().__init__()
        width = architecture.width
        self.lstm = nn.LSTM(inputs or width, width // 2, num_layers=architecture.recurrent, bidirectional=True)
        self.dropout = Dropout(architecture.dropout)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the states (N, D) of both directions side by side, read within each sequence of the batch.

        In float32 at any precision: rounding would add up from token to token.
        """
        with torch.autocast(hidden.device.type, enabled=False):
            packed = pack_sequence(hidden.float().split(list(batch.lengths)), enforce_sorted=False)
            mixed, _ = self.lstm(packed)
        return self.dropout(torch.cat(unpack_sequence(mixed)))
