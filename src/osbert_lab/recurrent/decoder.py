"""The decoder of recurrent translators: a step keeps the states of LSTM layers, not keys and values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.sizes import Precision
from osbert_lab.recurrent.translation_layers import AttentiveWriter, ReadSource, WriterState


class SourceReader(Protocol):
    """The parts of a translator (osbert_lab/recurrent/translator.py) that a step calls."""

    writer: AttentiveWriter

    @property
    def written_words(self) -> nn.Embedding:
        """Return the table of the vectors of the texts that are written."""

    def read(self, source: Batch) -> ReadSource:
        """Return what the decoder reads of the encoded sources."""


class RecurrentDecoder:
    """A translator in evaluation mode, with the sources that it has read and the states of its LSTM layers.

    Every prompt has a source. All prompts have the same number of pieces, usually just the start piece.
    """

    source: ReadSource
    state: WriterState

    def __init__(self, backbone: SourceReader, head: MaskedLanguageHead) -> None:
        """Wrap a model; made by `Translator.decoder`."""
        self.backbone = backbone
        self.head = head

    @property
    def device(self) -> torch.device:
        """The device of the scores."""
        return self.head.pieces.device

    def fresh(self, precision: Precision = "fp32", *, spare: int = sys.maxsize) -> Self:
        """Return a decoder of the same model, for `begin`; its steps compute in float32 whatever the precision."""
        return copy(self)

    def copies(self, *, rows: int, most: int) -> int:
        """Return 0: no weights are copied."""
        return 0

    def memory(self, prompt: Example, *, most: int, beams: int = 1) -> int:
        """Return the bytes of the states of a prompt's source (S, D), of which each row has a copy."""
        tokens = 0 if prompt.source is None else len(prompt.source)
        return 4 * beams * tokens * self.backbone.writer.asking.in_features

    def begin(self, prompts: Sequence[Example], *, most: int, beams: int = 1) -> Tensor:
        """Read the sources and prompts, one row each, and return the scores (rows, V) of each next piece."""
        if len({len(prompt) for prompt in prompts}) > 1 or any(prompt.source is None for prompt in prompts):
            raise ValueError("the prompts of a decoder must each have a source and be equally long")
        sources = [
            replace(prompt.source, record=row, targets={}) for row, prompt in enumerate(prompts) if prompt.source
        ]
        batch = collate(sources).to(self.device)
        # collate sorts by length; argsort of the rows' numbers restores the order of the prompts.
        self.source = self.backbone.read(batch).rows(batch.records.to(self.device).argsort())
        self.state = self.backbone.writer.begin(self.source)
        for pieces in torch.tensor([prompt.ids.tolist() for prompt in prompts], device=self.device).unbind(1):
            scores = self.step(pieces)
        return scores

    def step(self, pieces: Tensor) -> Tensor:
        """Read one more piece of each row (rows,) and return the scores (rows, V) of the next."""
        self.state = self.backbone.writer.step(self.backbone.written_words(pieces), self.state, self.source)
        return self.head.scores(self.state.last)

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Continue with these rows; `related`: each has the same source as the row that it replaces."""
        self.state = self.state.rows(rows)
        if not related:
            self.source = self.source.rows(rows)
