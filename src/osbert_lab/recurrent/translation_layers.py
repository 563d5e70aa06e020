"""The layers of an LSTM translator: an encoder layer in both directions, and a decoder with attention."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear
from osbert_lab.recurrent.lstm import Steps
from osbert_lab.recurrent.translator_architecture import TranslatorArchitecture
from osbert_lab.writing.steps import rectangle


class LayerState(NamedTuple):
    """The state (B, D) and the memory cells (B, D) of one LSTM layer."""

    state: Tensor
    cell: Tensor

    def rows(self, rows: Tensor | slice) -> LayerState:
        """Return these rows."""
        return LayerState(self.state[rows], self.cell[rows])


class ReadSource(NamedTuple):
    """An encoded source for each of B rows.

    `states` (B, S, D): the last layer's states, 0 after a row's end. `seen` (B, S): whether there is a token. `ends`:
    for each layer, its final states and cells: those of both directions, side by side.
    """

    states: Tensor
    seen: Tensor
    ends: list[LayerState]

    @classmethod
    def of(cls, batch: Batch, hidden: Tensor, ends: list[LayerState]) -> Self:
        """Return the sources of a batch, whose last layer's states are `hidden` (N, D)."""
        device = hidden.device
        counts = torch.tensor(batch.lengths, device=device)
        room = max(batch.lengths)
        rows = torch.arange(len(counts), device=device).repeat_interleave(counts)
        states = rectangle(hidden, rows * room + batch.places, len(counts), room)
        return cls(states, torch.arange(room, device=device) < counts[:, None], ends)

    def rows(self, rows: Tensor | slice) -> ReadSource:
        """Return the sources of these rows."""
        return ReadSource(self.states[rows], self.seen[rows], [end.rows(rows) for end in self.ends])


class WriterState(NamedTuple):
    """What the decoder keeps between two steps: the LSTM layers' states, and its last output (B, side)."""

    layers: list[LayerState]
    last: Tensor

    def rows(self, rows: Tensor | slice) -> WriterState:
        """Return the states of these rows."""
        return WriterState([layer.rows(rows) for layer in self.layers], self.last[rows])


class EncoderLayer(nn.Module):
    """(N, P) -> (N, D): an LSTM layer that reads each sequence from the left and from the right."""

    def __init__(self, inputs: int, sizes: TranslatorArchitecture) -> None:
        """Make a layer for inputs of width P = `inputs`."""
        super().__init__()
        self.lstm = nn.LSTM(inputs, sizes.side, bidirectional=True)
        self.dropout = Dropout(sizes.dropout)

    def forward(self, values: Tensor, batch: Batch, steps: Steps) -> tuple[Tensor, LayerState]:
        """Return the states (N, D), and the final states and cells (B, D) of both directions.

        Always in float32: rounding errors would accumulate over the tokens.
        """
        with torch.autocast(values.device.type, enabled=False):
            read = self.dropout(values.float())[steps.forth]
            states, ends = self.lstm(nn.utils.rnn.PackedSequence(read, steps.sizes))
        hidden = torch.empty_like(states.data).index_copy(0, steps.forth, states.data)
        # (2, B, side) -> (B, D), and from the order of steps, longest first, to that of the batch.
        rows = rank_sequences(batch, steps)
        joined = (end.transpose(0, 1).flatten(1) for end in ends)
        return hidden, LayerState(*(torch.empty_like(end).index_copy(0, rows, end) for end in joined))


class AttentiveWriter(nn.Module):
    """The decoder: LSTM layers with input feeding, and attention to the source after each step (Luong et al. 2015).

    With the vector z of the last piece and the states H (S, D) of the source (McCann et al. 2017, equations 3 to 6):

        h = LSTM([z; last], h),  a = softmax(H (W1 h + b1)),  last = tanh(W2 [H^T a; h] + b2)

    `last` (side,) is the output, and part of the next input. Each layer starts from the final states and cells of the
    encoder's layer.
    """

    def __init__(self, sizes: TranslatorArchitecture) -> None:
        """Make the layers of a decoder."""
        super().__init__()
        width = sizes.width
        # The first layer reads a vector and the last output, each of half the width.
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(sizes.layers))
        self.asking = Linear(width, width)  # W1
        self.joining = Linear(2 * width, sizes.side)  # W2
        self.dropout = Dropout(sizes.dropout)

    def begin(self, source: ReadSource) -> WriterState:
        """Return the state before the first step."""
        states = source.states
        return WriterState(source.ends, states.new_zeros(len(states), self.joining.out_features))

    def step(self, vectors: Tensor, before: WriterState, source: ReadSource) -> WriterState:
        """Return the state after reading the vectors (B, side) of one more piece of each row."""
        values, layers = torch.cat([vectors, before.last], 1), []
        for cell, layer in zip(self.cells, before.layers, strict=True):
            layers.append(LayerState(*cell(self.dropout(values), layer)))
            values = layers[-1].state
        scores = (source.states @ self.asking(values)[:, :, None]).squeeze(2)  # (B, S)
        weights = scores.masked_fill(~source.seen, -torch.inf).softmax(1)
        context = (weights[:, None] @ source.states).squeeze(1)  # (B, D)
        return WriterState(layers, self.joining(torch.cat([context, values], 1)).tanh())

    def forward(self, vectors: Tensor, batch: Batch, source: ReadSource) -> Tensor:
        """Return the outputs (N, side) for a batch whose pieces have these vectors (N, side), in float32."""
        steps = Steps.of(batch)
        with torch.autocast(vectors.device.type, enabled=False):
            source = source.rows(rank_sequences(batch, steps))
            state, step_outputs = self.begin(source), []
            for step in vectors.float()[steps.forth].split(steps.sizes.tolist()):
                going = slice(len(step))  # the shorter sequences, which are the last rows, have ended
                state = self.step(step, state.rows(going), source.rows(going))
                step_outputs.append(state.last)
            outputs = torch.cat(step_outputs)
            return self.dropout(torch.empty_like(outputs).index_copy(0, steps.forth, outputs))


def rank_sequences(batch: Batch, steps: Steps) -> Tensor:
    """Return the indices (B,) of a batch's sequences in the order of its steps, the longest first."""
    # The first step has the first token of every sequence.
    return torch.searchsorted(batch.starts, steps.forth[: len(batch.starts)])
