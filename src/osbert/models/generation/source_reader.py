"""The decoder of encoder-decoders: the decoder's blocks, with cached keys and values of the encoded sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.models.contract import States
from osbert.models.generation.cache import KeyValueCache, rectangle
from osbert.models.generation.left_to_right import BlockStack, LeftToRightDecoder
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.transformer.block import DecoderBlock


class SourceDecoder(LeftToRightDecoder):
    """A decoder in evaluation mode. It caches the keys and values (sources, H, S, K) of the sources for each layer.

    Every prompt has a source. All prompts have the same number of pieces, usually just the start piece. Beams of a text
    are neighbouring rows and attend to one copy of its source: `rows_each` rows to each source, in order.
    """

    def __init__(self, backbone: BlockStack, head: MaskedLanguageHead, encoder: Callable[[Batch], States]) -> None:
        """Wrap a model; made by `Pair.decoder`."""
        self.encoder = encoder
        super().__init__(backbone, head)

    def _forget(self) -> None:
        super()._forget()
        self.keys: list[tuple[Tensor, Tensor]] = []
        self.rows_each = 1
        self.sources = 0
        # Added to the scores, -inf behind the end of a source; None for sources of one length.
        self.masked: Tensor | None = None

    def begin(self, prompts: Sequence[Example], *, most: int, beams: int = 1) -> Tensor:
        """Read the sources and prompts, one row each, and return the scores (rows, V) of each next piece."""
        if len({len(prompt) for prompt in prompts}) > 1 or any(prompt.source is None for prompt in prompts):
            raise ValueError("a decoder's prompts have a source each, and are equally long")
        sources = [
            replace(prompt.source, record=row, targets={}) for row, prompt in enumerate(prompts) if prompt.source
        ]
        batch = collate(sources).to(self.device)
        with self.autocast():
            hidden = self.encoder(batch).hidden
        rows = batch.records.to(self.device)
        counts = torch.tensor(batch.lengths, device=self.device)
        room = batch.lengths[0]
        # Token t of the source in row r goes to cell r * room + t of the rectangle (rows, room).
        cells = (rows * room).repeat_interleave(counts) + batch.places
        self.keys = []
        for block in self.backbone.depth:
            assert isinstance(block, DecoderBlock)
            key, value = (
                rectangle(part.to(self.cache_precision), cells, len(rows), room).transpose(1, 2)
                for part in block.cross.keys(hidden)
            )
            self.keys.append((key, value))  # (rows, H, S, K) each
        self.rows_each, self.sources, self.masked = 1, len(prompts), None
        if batch.lengths[-1] < room:
            ends = counts[rows.argsort()][:, None]  # in the order of the prompts
            outside = torch.arange(room, device=self.device) >= ends
            self.masked = torch.zeros_like(outside, dtype=self.cache_precision).masked_fill_(outside, float("-inf"))[
                :, None, None
            ]
        return self._first(prompts, most=most, beams=beams)

    def memory(self, prompt: Example, *, most: int, beams: int = 1) -> int:
        """Return the bytes of the keys and values of a prompt's rows and of its source, which has one copy."""
        # A source's tokens have keys and values in each layer, as its text's tokens have.
        return super().memory(prompt, most=most, beams=beams) + (
            0 if prompt.source is None else super().memory(prompt.source, most=0)
        )

    def _first(self, prompts: Sequence[Example], *, most: int, beams: int) -> Tensor:
        """Read the prompts by steps, whose weights are prepared, and return the scores (rows, V) of the next pieces."""
        pieces = torch.from_numpy(np.stack([prompt.ids for prompt in prompts])).long().to(self.device)
        self.kind = self._kind(len(prompts) * beams, most)
        none = torch.zeros(len(prompts), dtype=torch.long, device=self.device)
        self.cache = KeyValueCache(none, layers=len(self.backbone.depth), room=pieces.shape[1] + most)
        self.segments = torch.tensor([int(prompt.segments[-1]) for prompt in prompts], device=self.device)
        layouts = list(self.backbone.layouts(self.backbone.layout(self._each_alone(pieces[:, :1]))))
        self.windows, self.turned = [layout.window for layout in layouts], layouts[0].turns is not None
        *before, last = pieces.unbind(dim=1)
        for column in before:
            self.step(column)
        return self.step(last)

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Continue with these rows; `related`: each has the same source as the row that it replaces."""
        super().choose(rows, related=related)
        if related:
            return
        owners = rows.div(self.rows_each, rounding_mode="floor")  # the source of each row
        chosen, counts = owners.unique_consecutive(return_counts=True)
        self.rows_each = int(counts[0])
        if (counts != self.rows_each).any():
            # Texts with different numbers of rows: a copy of the source for each row.
            chosen, self.rows_each = owners, 1
        if len(chosen) == self.sources and bool((chosen == torch.arange(self.sources, device=rows.device)).all()):
            return
        self.sources = len(chosen)
        self.masked = None if self.masked is None else self.masked[chosen]
        self.keys = [(key[chosen], value[chosen]) for key, value in self.keys]

    def _across(self, layer: int, query: Tensor) -> Tensor:
        key, value = self.keys[layer]
        # All rows of a source are queries of one call, so that its keys and values are read once.
        queries = query.to(key.dtype).reshape(self.sources, -1, *query.shape[2:]).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(queries, key, value, attn_mask=self.masked)
        # (sources, H, rows of a source, K) -> one row for each query again.
        return mixed.transpose(1, 2).reshape(query.shape)
