"""What writes texts from their sources: the blocks of a decoder, and the keys and values of what an encoder read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.models.contract import States
from osbert.models.generation.left_to_right import BlockStack, LeftToRightDecoder
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.transformer.block import Block, DecoderBlock


class SourceDecoder(LeftToRightDecoder):
    """A decoder in evaluation mode; of each layer it keeps the keys and values (rows, S, H, K) of the sources.

    Every prompt has a source, and as many pieces as every other: mostly the one with which writing starts.
    """

    def __init__(self, backbone: BlockStack, head: MaskedLanguageHead, encoder: Callable[[Batch], States]) -> None:
        """Stand for a model; `Pair.decoder` makes one."""
        super().__init__(backbone, head)
        self.encoder = encoder
        self.keys: list[tuple[Tensor, Tensor]] = []
        self.seen = torch.zeros(0, dtype=torch.bool)

    def begin(self, prompts: Sequence[Example], *, most: int) -> Tensor:
        """Read the sources, and the prompts, a row each, and return the scores (rows, V) of each one's next piece."""
        if len({len(prompt) for prompt in prompts}) > 1 or any(prompt.source is None for prompt in prompts):
            raise ValueError("a decoder's prompts have a source each, and are equally long")
        sources = [replace(one.source, record=row, targets={}) for row, one in enumerate(prompts) if one.source]
        batch = collate(sources).to(self.device)
        hidden = self.encoder(batch).hidden
        rows = batch.records.to(self.device)
        counts = torch.tensor(batch.lengths, device=self.device)
        room = batch.lengths[0]
        places = (rows * room).repeat_interleave(counts) + batch.places
        self.keys = []
        for block in self.backbone.depth:
            assert isinstance(block, DecoderBlock)
            key, value = (_rectangle(part, places, len(rows), room) for part in block.cross.keys(hidden))
            self.keys.append((key, value))
        columns = torch.arange(room, device=self.device)
        self.seen = (columns < counts[rows.argsort()][:, None])[:, None, None]  # (rows, 1, 1, S)
        # Prompts are equally long, so that rows stay in their order.
        return super().begin([replace(prompt, source=None) for prompt in prompts], most=most)

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Go on with these rows alone; `related`: each is of the source of the row whose place it takes."""
        super().choose(rows, related=related)
        if not related:
            self.seen = self.seen[rows]
            self.keys = [(key[rows], value[rows]) for key, value in self.keys]

    def _finished(self, layer: int, block: Block, hidden: Tensor, mixed: Tensor) -> Tensor:
        assert isinstance(block, DecoderBlock)
        hidden = block.joined(hidden, mixed)
        key, value = self.keys[layer]
        query = (
            block.cross.queries(block.asking(hidden)).unflatten(0, (len(key), -1)).transpose(1, 2)
        )  # (rows, H, Q, K)
        found = functional.scaled_dot_product_attention(
            query, key.transpose(1, 2), value.transpose(1, 2), attn_mask=self.seen
        )
        found = found.transpose(1, 2).flatten(2).flatten(0, 1)  # (rows * Q, H K)
        return block.completed(block.informed(hidden, block.cross.outward(found)))


def _rectangle(part: Tensor, places: Tensor, rows: int, room: int) -> Tensor:
    """Return `part` (N, H, K) as (rows, room, H, K), 0 where no token is; `places` (N,) are row * room + column."""
    return part.new_zeros(rows * room, *part.shape[1:]).index_copy_(0, places, part).unflatten(0, (rows, room))
