"""What goes on with texts: a Transformer whose tokens see those before them, or all of a prompt and those before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.models.generation.cache import KeyValueCache
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.transformer.block import Block
from osbert.models.transformer.embeddings import Embeddings
from osbert.models.transformer.layout import Layout


class BlockStack(Protocol):
    """The parts of a Transformer (models/families/transformer.py) that a step passes, one after the other."""

    embeddings: Embeddings

    @property
    def depth(self) -> Sequence[Block]:
        """Return the block of each layer, from the bottom up."""

    def layout(self, batch: Batch) -> Layout:
        """Return how a batch's sequences lie in memory."""

    def layouts(self, layout: Layout) -> Iterable[Layout]:
        """Return the layout of each block."""

    def top(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the last layer's states from what the last block gives, both (N, D)."""


class LeftToRightDecoder:
    """A Transformer in evaluation mode and its language-model head, with the keys and values of what they read.

    A prompt may have an order of its own: where it is 0 everywhere, its tokens see each other (a prefix LM).
    """

    def __init__(self, backbone: BlockStack, head: MaskedLanguageHead) -> None:
        """Stand for a model; `Transformer.decoder` makes one where there can be one."""
        self.backbone = backbone
        self.head = head
        self.cache = KeyValueCache(torch.zeros(1, dtype=torch.long), layers=0, room=0)
        self.segments = torch.zeros(0, dtype=torch.long)

    @property
    def device(self) -> torch.device:
        """Return where the scores are."""
        return self.head.pieces.device

    def begin(self, prompts: Sequence[Example], *, most: int) -> Tensor:
        """Read the prompts, a row each, in their order, and return the scores (rows, V) of each one's next piece."""
        backbone = self.backbone
        batch = collate([replace(one, record=row, targets={}) for row, one in enumerate(prompts)]).to(self.device)
        rows = batch.records.to(self.device)  # (B,): the batch has its longest sequences first
        counts = torch.tensor(batch.lengths, device=self.device)
        back = rows.argsort()
        room = batch.lengths[0] + most
        self.cache = KeyValueCache(counts[back], layers=len(backbone.depth), room=room)
        places = (rows * room).repeat_interleave(counts) + batch.places
        hidden = backbone.embeddings(batch)
        for layer, (block, layout) in enumerate(zip(backbone.depth, backbone.layouts(backbone.layout(batch)))):
            query, key, value = block.attention.project(block.attended(hidden), layout)
            self.cache.fill(layer, key, value, places)
            hidden = self._finished(layer, block, hidden, block.attention.mixed(query, key, value, layout))
        last = (batch.starts + counts - 1)[back]
        self.segments = batch.segments[last]
        return self.head.scores(backbone.top(hidden, batch)[last])

    def step(self, pieces: Tensor) -> Tensor:
        """Read one more piece of each row, (rows,), and return the scores (rows, V) of the next."""
        backbone, cache = self.backbone, self.cache
        batch = self._one_each(pieces)
        hidden = backbone.embeddings(batch)
        # Of the layout of single tokens attention reads the rotary turns alone.
        added: dict[int | None, Tensor | None] = {}
        for layer, (block, layout) in enumerate(zip(backbone.depth, backbone.layouts(backbone.layout(batch)))):
            if layout.window not in added:
                added[layout.window] = self._added(layout.window)
            query, key, value = block.attention.project(block.attended(hidden), layout)
            mixed = cache.attend(layer, query, key, value, added[layout.window])
            hidden = self._finished(layer, block, hidden, block.attention.outward(mixed.flatten(1)))
        cache.advance()
        return self.head.scores(backbone.top(hidden, batch))

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Go on with these rows alone; `related`: each is of the prompt of the row whose place it takes."""
        self.segments = self.segments[rows]
        self.cache.choose(rows, related=related)

    def _finished(self, layer: int, block: Block, hidden: Tensor, mixed: Tensor) -> Tensor:
        """Return a layer's output (N, D) from its input and what attention gives of it, both (N, D)."""
        return block.finished(hidden, mixed)

    def _one_each(self, pieces: Tensor) -> Batch:
        """Return the batch of the new tokens, each a sequence of its own."""
        places = torch.arange(len(pieces))
        return Batch(
            ids=pieces,
            positions=self.cache.lengths,
            segments=self.segments,
            order=None,
            lengths=(1,) * len(pieces),
            starts=places.to(self.device),
            records=places,
        )

    def _added(self, window: int | None) -> Tensor | None:
        """Return what is added to the scores of each row's new token and all columns up to its own."""
        cache = self.cache
        lengths = cache.lengths[:, None]  # (rows, 1)
        columns = torch.arange(cache.used + 1, device=lengths.device)[None]  # (1, T)
        scores = self.backbone.embeddings.distance_scores
        bias = None if scores is None else scores.between(lengths, columns)  # (rows, H, 1, T)
        if cache.even and (window is None or cache.used <= window):
            return bias
        visible = columns <= lengths
        if window is not None:
            visible &= columns >= lengths - window
        visible = visible[:, None, None]
        if bias is None:
            bias = self.head.pieces.new_zeros(())
        return torch.where(visible, bias, float("-inf"))
