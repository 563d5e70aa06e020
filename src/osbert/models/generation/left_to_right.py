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

    def __init__(self, backbone: BlockStack, head: MaskedLanguageHead, *, segment: int | None = None) -> None:
        """Stand for a model; `Transformer.decoder` makes one where there can be one.

        `segment`: that of the pieces that are written; None for that of the prompt's last token.
        """
        self.backbone = backbone
        self.head = head
        self.segment = segment
        self.cache = KeyValueCache(torch.zeros(1, dtype=torch.long), layers=0, room=0)
        self.segments = torch.zeros(0, dtype=torch.long)

    @property
    def device(self) -> torch.device:
        """Return where the scores are."""
        return self.head.pieces.device

    def begin(self, prompts: Sequence[Example], *, most: int) -> Tensor:
        """Read the prompts, a row each, in their order, and return the scores (rows, V) of each one's next piece."""
        return self.read(prompts, most=most)

    def step(self, pieces: Tensor) -> Tensor:
        """Read one more piece of each row, (rows,), and return the scores (rows, V) of the next."""
        return self.advance(pieces[:, None])

    def read(self, prompts: Sequence[Example], *, most: int, spare: int = 0) -> Tensor:
        """Read the prompts, and return the scores (rows, V) at their last tokens.

        `spare`: how many of their last tokens are not kept; the next step writes over them.
        """
        backbone = self.backbone
        batch = collate([replace(one, record=row, targets={}) for row, one in enumerate(prompts)]).to(self.device)
        rows = batch.records.to(self.device)  # (B,): the batch has its longest sequences first
        counts = torch.tensor(batch.lengths, device=self.device)
        back = rows.argsort()
        room = batch.lengths[0] + most
        self.cache = KeyValueCache(counts[back] - spare, layers=len(backbone.depth), room=room)
        places = (rows * room).repeat_interleave(counts) + batch.places
        hidden = backbone.embeddings(batch)
        for layer, (block, layout) in enumerate(zip(backbone.depth, backbone.layouts(backbone.layout(batch)))):
            query, key, value = block.attention.project(block.attended(hidden), layout)
            self.cache.fill(layer, key, value, places)
            hidden = self._finished(layer, block, hidden, block.attention.mixed(query, key, value, layout))
        last = (batch.starts + counts - 1)[back]
        self.segments = batch.segments[last] if self.segment is None else torch.full_like(last, self.segment)
        return self.head.scores(backbone.top(hidden, batch)[last])

    def advance(self, tokens: Tensor) -> Tensor:
        """Read Q more tokens of each row, (rows, Q), and return the scores (rows, V) at the last one.

        Each sees itself and what is before it. The first is kept.
        """
        backbone, cache = self.backbone, self.cache
        rows, count = tokens.shape
        batch = self._each_alone(tokens)
        hidden = backbone.embeddings(batch)  # (rows * Q, D)
        # Of the layout of single tokens attention reads the rotary turns alone.
        added: dict[int | None, Tensor | None] = {}
        for layer, (block, layout) in enumerate(zip(backbone.depth, backbone.layouts(backbone.layout(batch)))):
            if layout.window not in added:
                added[layout.window] = self._added(count, layout.window)
            parts = block.attention.project(block.attended(hidden), layout)
            query, key, value = (part.unflatten(0, (rows, count)) for part in parts)  # 3 x (rows, Q, H, K)
            seen = added[layout.window]
            if block.attention.relative is not None:
                columns = torch.arange(cache.used + count, device=query.device)
                query, bias = block.attention.relative.between(query, cache.columns(count), columns)
                seen = bias if seen is None else bias + seen
            mixed = cache.attend(layer, query, key, value, seen)
            mixed = block.attention.outward(mixed.flatten(2).flatten(0, 1))
            hidden = self._finished(layer, block, hidden, mixed)
        cache.advance()
        return self.head.scores(backbone.top(hidden, batch)[count - 1 :: count])

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Go on with these rows alone; `related`: each is of the prompt of the row whose place it takes."""
        self.segments = self.segments[rows]
        self.cache.choose(rows, related=related)

    def _finished(self, layer: int, block: Block, hidden: Tensor, mixed: Tensor) -> Tensor:
        """Return a layer's output (N, D) from its input and what attention gives of it, both (N, D)."""
        return block.finished(hidden, mixed)

    def _each_alone(self, tokens: Tensor) -> Batch:
        """Return the batch of the new tokens (rows, Q), each a sequence of its own."""
        rows, count = tokens.shape
        places = torch.arange(rows * count)
        return Batch(
            ids=tokens.flatten(),
            positions=self.cache.columns(count).flatten(),
            segments=self.segments.repeat_interleave(count),
            order=None,
            lengths=(1,) * (rows * count),
            starts=places.to(self.device),
            records=places,
        )

    def _added(self, count: int, window: int | None) -> Tensor | None:
        """Return what is added to the scores of each row's new tokens and all columns up to their last."""
        cache = self.cache
        own = cache.columns(count)  # (rows, Q)
        columns = torch.arange(cache.used + count, device=own.device)[None]  # (1, T)
        scores = self.backbone.embeddings.distance_scores
        bias = None if scores is None else scores.between(own, columns)  # (rows, H, Q, T)
        if count == 1 and cache.even and (window is None or cache.used <= window):
            return bias
        visible = columns[:, None] <= own[..., None]  # (rows, Q, T)
        if window is not None:
            visible &= columns[:, None] >= own[..., None] - window
        visible = visible[:, None]
        if bias is None:
            bias = self.head.pieces.new_zeros(())
        return torch.where(visible, bias, float("-inf"))


class MaskedStepDecoder(LeftToRightDecoder):
    """What writes where a piece is predicted at the [MASK] in its place (UniLM, Dong et al. 2019, section 2.4).

    Prompts end with that [MASK]. A step reads the piece that takes its place and the next [MASK]; the keys and values
    of a [MASK] are not kept, since no token that is written sees one.
    """

    mask: int

    def begin(self, prompts: Sequence[Example], *, most: int) -> Tensor:
        """Read the prompts, a row each, in their order, and return the scores (rows, V) at their [MASK]."""
        self.mask = int(prompts[0].ids[-1])
        return self.read(prompts, most=most, spare=1)

    def step(self, pieces: Tensor) -> Tensor:
        """Read one more piece of each row, (rows,), and return the scores (rows, V) at the [MASK] behind it."""
        return self.advance(torch.stack([pieces, torch.full_like(pieces, self.mask)], dim=1))
