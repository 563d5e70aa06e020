"""The decoder of encoder-decoders: the decoder's blocks, with cached keys and values of the encoded sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.models.contract import States
from osbert.models.generation.cache import rectangle
from osbert.models.generation.left_to_right import BlockStack, LeftToRightDecoder
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.transformer.block import Block, DecoderBlock


class SourceDecoder(LeftToRightDecoder):
    """A decoder in evaluation mode. It caches the keys and values (rows, H, S, K) of the sources for each layer.

    Every prompt has a source. All prompts have the same number of pieces, usually just the start piece.
    """

    def __init__(self, backbone: BlockStack, head: MaskedLanguageHead, encoder: Callable[[Batch], States]) -> None:
        """Wrap a model; made by `Pair.decoder`."""
        self.encoder = encoder
        super().__init__(backbone, head)

    def _forget(self) -> None:
        super()._forget()
        self.keys: list[tuple[Tensor, Tensor]] = []
        self.seen = torch.zeros(0, dtype=torch.bool)

    def begin(self, prompts: Sequence[Example], *, most: int) -> Tensor:
        """Read the sources and prompts, one row each, and return the scores (rows, V) of each next piece."""
        if len({len(prompt) for prompt in prompts}) > 1 or any(prompt.source is None for prompt in prompts):
            raise ValueError("a decoder's prompts have a source each, and are equally long")
        sources = [replace(one.source, record=row, targets={}) for row, one in enumerate(prompts) if one.source]
        batch = collate(sources).to(self.device)
        with self.autocast():
            hidden = self.encoder(batch).hidden
        rows = batch.records.to(self.device)
        counts = torch.tensor(batch.lengths, device=self.device)
        room = batch.lengths[0]
        places = (rows * room).repeat_interleave(counts) + batch.places
        self.keys = []
        for block in self.backbone.depth:
            assert isinstance(block, DecoderBlock)
            key, value = (
                rectangle(part.to(self.kept), places, len(rows), room).transpose(1, 2)
                for part in block.cross.keys(hidden)
            )
            self.keys.append((key, value))  # (rows, H, S, K) each
        # True for the columns that hold a source token, in the order of the prompts.
        columns = torch.arange(room, device=self.device)
        self.seen = (columns < counts[rows.argsort()][:, None])[:, None, None]  # (rows, 1, 1, S)
        # Prompts are equally long, so collating them does not change the order of rows.
        return super().begin([replace(prompt, source=None) for prompt in prompts], most=most)

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Continue with these rows; `related`: each has the same source as the row that it replaces."""
        super().choose(rows, related=related)
        if not related:
            self.seen = self.seen[rows]
            self.keys = [(key[rows], value[rows]) for key, value in self.keys]

    def _finished(self, layer: int, block: Block, hidden: Tensor, mixed: Tensor) -> Tensor:
        assert isinstance(block, DecoderBlock)
        hidden = block.joined(hidden, mixed)
        query = block.cross.queries(block.asking(hidden)).unflatten(0, (len(self.seen), -1))
        found = self._across(layer, query)
        return block.completed(block.informed(hidden, block.cross.outward(found.flatten(2).flatten(0, 1))))

    def _across(self, layer: int, query: Tensor) -> Tensor:
        key, value = self.keys[layer]
        query = query.to(key.dtype).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=self.seen)
        return mixed.transpose(1, 2)
