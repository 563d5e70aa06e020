"""Decoders: Transformers that continue texts, with causal or full attention to the prompt, or that read a source."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.models.contract import Backbone, Head, States
from osbert.models.families.transformer import Transformer
from osbert.models.fast.linear import weight_state
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.sizes import Precision
from osbert_lab.writing.contract import CachedDecoder, WritingBackbone
from osbert_lab.writing.decoder_block import DecoderBlock
from osbert_lab.writing.modes import TARGET
from osbert_lab.writing.steps import KeyValueCache, StepKind, StepWeights, measure_copies, rectangle


class LeftToRightDecoder:
    """A Transformer in evaluation mode, its language-model head, and a cache of keys and values.

    A prompt may have an order: if it is 0 everywhere, its tokens attend to each other (prefix LM).
    """

    def __init__(self, backbone: Transformer, head: MaskedLanguageHead, *, segment: int | None = None) -> None:
        """Wrap a model; `decoder_of` checks that it can be decoded.

        `segment`: the segment of generated pieces; None for that of the prompt's last token.
        """
        self.backbone = backbone
        self.head = head
        self.segment = segment
        self.precision = torch.float32
        self.spare = sys.maxsize
        self.ready: dict[StepKind, StepWeights] = {}
        self.weight_states: list[object] = []
        self._forget()

    def _forget(self) -> None:
        """Empty the cache."""
        self.cache = KeyValueCache(torch.zeros(1, dtype=torch.long), layers=0, room=0)
        self.segments = torch.zeros(0, dtype=torch.long)
        self.windows: list[int | None] = []
        self.turned = False
        self.kind = StepKind.of(self.precision, rows=1, most=0)

    def fresh(self, precision: Precision = "fp32", *, spare: int = sys.maxsize) -> Self:
        """Return an empty decoder of the same model whose steps compute in `precision`.

        Both share the prepared weights, unless the model's have changed. `spare`: bytes for copies of weights in a
        faster order.
        """
        matrices = [weight for block in dict.fromkeys(self.backbone.depth) for weight in block.parameters()]
        weight_states = [weight_state(weight) for weight in (*matrices, self.head.pieces, self.head.bias)]
        if weight_states != self.weight_states:
            self.ready.clear()
            self.weight_states[:] = weight_states  # shared, as `ready` is
        decoder = copy(self)
        decoder.precision = torch.bfloat16 if precision == "bf16" else torch.float32
        decoder.spare = spare
        decoder._forget()
        return decoder

    def copies(self, *, rows: int, most: int) -> int:
        """Return the bytes of weights that `begin` would copy for so many rows and pieces."""
        return self._measure_copies(self._kind(rows, most))

    def memory(self, prompt: Example, *, most: int, beams: int = 1) -> int:
        """Return the bytes of the keys and values of all rows of a prompt after `most` pieces."""
        widths = sum(block.attention.outward.weight.shape[1] for block in self.backbone.depth)  # H * K of each layer
        return 2 * beams * (len(prompt) + most) * widths * self.cache_precision.itemsize

    def _kind(self, rows: int, most: int) -> StepKind:
        """Return the kind of weights for steps of at most `rows` tokens and texts of at most `most` pieces."""
        kind = StepKind.of(self.precision, rows=rows, most=most)
        # The model's own order takes no memory, unless another precision needs a copy anyway.
        return kind if self._measure_copies(kind) <= self.spare else kind._replace(rows=0)

    def _measure_copies(self, kind: StepKind) -> int:
        return 0 if kind in self.ready else measure_copies(self.backbone.depth, self.head.pieces, kind)

    @property
    def weights(self) -> StepWeights:
        """Return the weights of the model, ready for steps."""
        if self.kind not in self.ready:
            head = self.head
            self.ready[self.kind] = StepWeights(self.backbone.depth, head.pieces, head.bias, self.kind)
        return self.ready[self.kind]

    @property
    def device(self) -> torch.device:
        """The device of the scores."""
        return self.head.pieces.device

    def begin(self, prompts: Sequence[Example], *, most: int, beams: int = 1) -> Tensor:
        """Read the prompts, one row each, and return the scores (rows, V) of each next piece."""
        self.kind = self._kind(len(prompts) * beams, most)
        return self.read(prompts, most=most)

    @property
    def cache_precision(self) -> torch.dtype:
        """The precision of cached keys and values: float32 on CPUs, where attention of one query is slower in bf16."""
        return torch.float32 if self.device.type == "cpu" else self.precision

    def autocast(self) -> torch.autocast:
        """Return the context in which prompts are read with products in the precision of the steps."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == torch.bfloat16)

    def step(self, pieces: Tensor) -> Tensor:
        """Read one more piece of each row, (rows,), and return the scores (rows, V) of the next."""
        return self.advance(pieces[:, None])

    def read(self, prompts: Sequence[Example], *, most: int, spare: int = 0) -> Tensor:
        """Read the prompts, fill the cache, and return the scores (rows, V) at their last tokens.

        `spare`: number of last tokens that do not stay in the cache; the next step overwrites them.
        """
        backbone = self.backbone
        # collate sorts by length: the record keeps the index of the prompt.
        batch = collate([replace(prompt, record=row, targets={}) for row, prompt in enumerate(prompts)]).to(self.device)
        rows = batch.records.to(self.device)  # (B,): the batch has its longest sequences first
        counts = torch.tensor(batch.lengths, device=self.device)
        # back[row]: the index in the batch of each row, to return results in the order of the prompts.
        back = rows.argsort()
        # The cache is allocated once, for the longest prompt and all pieces that may follow.
        room = batch.lengths[0] + most
        self.cache = KeyValueCache(counts[back] - spare, layers=len(backbone.depth), room=room)
        # Index of each token in the flattened cache: row * room + column.
        cells = (rows * room).repeat_interleave(counts) + batch.places
        layouts = list(backbone.layouts(backbone.layout(batch)))
        # Kept for `advance`: steps have no layout of the whole text.
        self.windows, self.turned = [layout.window for layout in layouts], layouts[0].turns is not None
        hidden = backbone.embeddings(batch)
        with self.autocast():
            for layer, (block, layout) in enumerate(zip(backbone.depth, layouts, strict=True)):
                query, key, value = block.attention.project(block.attention_input(hidden), layout)
                self.cache.fill(layer, key.to(self.cache_precision), value.to(self.cache_precision), cells)
                hidden = block.finish(hidden, block.attention.attend(query, key, value, layout))
        # The last token of each prompt, in the order of the prompts.
        last = (batch.starts + counts - 1)[back]
        self.segments = batch.segments[last] if self.segment is None else torch.full_like(last, self.segment)
        return self._scores(backbone.top(hidden, batch)[last])

    def advance(self, tokens: Tensor) -> Tensor:
        """Read Q more tokens of each row, (rows, Q), and return the scores (rows, V) at the last one.

        Each attends to itself and all tokens before it. Only the first of the Q stays in the cache.
        """
        backbone, cache = self.backbone, self.cache
        rows, count = tokens.shape
        batch = self._each_alone(tokens)
        hidden = backbone.embeddings(batch)  # (rows * Q, D)
        # New tokens form a batch of single tokens, whose layout is needed for its rotary angles only.
        layouts = backbone.layouts(backbone.layout(batch)) if self.turned else ()
        turns = [layout.turns for layout in layouts] or [None] * len(self.windows)
        # Layers with the same window share one mask.
        added = {window: self._score_bias(count, window) for window in dict.fromkeys(self.windows)}
        for layer, (block, window) in enumerate(zip(self.weights.blocks, self.windows, strict=True)):
            attend = partial(self._attend, layer, added=added[window])
            across = partial(self._across, layer)
            hidden = block(hidden, attend, shape=(rows, count), turns=turns[layer], across=across)
        cache.advance()
        # The last of the Q new tokens of each row.
        return self._scores(backbone.top(hidden, batch)[count - 1 :: count])

    def choose(self, rows: Tensor, *, related: bool = False) -> None:
        """Continue with these rows; `related`: each has the same prompt as the row that it replaces."""
        self.segments = self.segments[rows]
        self.cache.choose(rows, related=related)

    def _scores(self, hidden: Tensor) -> Tensor:
        """Return the scores (rows, V) of states (rows, D)."""
        return self.weights.pieces(self.head.transform(hidden))

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, added: Tensor | None) -> Tensor:
        """Return attention's output (rows, Q, H, K) for new tokens, and cache their keys and values."""
        relative, cache = self.backbone.depth[layer].attention.relative, self.cache
        if relative is not None:
            query_columns = cache.columns(query.shape[1])
            columns = torch.arange(cache.used + query.shape[1], device=query.device)
            query, bias = relative.between(query, query_columns, columns)
            # `added` is -inf for masked keys, which a finite bias does not change.
            added = bias if added is None else bias + added
        if not cache.keys[layer].numel():
            cache.reserve(layer, key, self.cache_precision)
        return cache.attend(layer, query, key, value, added)

    def _across(self, layer: int, query: Tensor) -> Tensor:
        """Return cross-attention's output for queries (rows, Q, H, K); only decoders with a source have it."""
        raise NotImplementedError

    def _each_alone(self, tokens: Tensor) -> Batch:
        """Return the batch of the new tokens (rows, Q), each a sequence of its own."""
        rows, count = tokens.shape
        indices = torch.arange(rows * count)
        return Batch(
            ids=tokens.flatten(),
            # The column of a token in the cache is its position in the text.
            positions=self.cache.columns(count).flatten(),
            segments=self.segments.repeat_interleave(count),
            order=None,
            lengths=(1,) * (rows * count),
            starts=indices.to(self.device),
            records=indices,
        )

    def _score_bias(self, count: int, window: int | None) -> Tensor | None:
        """Return the bias and mask of the scores of new tokens, (rows or 1, H or 1, Q, T); None if there are none."""
        cache = self.cache
        query_columns = cache.columns(count)  # (rows, Q)
        columns = torch.arange(cache.used + count, device=query_columns.device)[None]  # (1, T)
        scores = self.backbone.embeddings.distance_scores
        placed = query_columns[:1] if cache.even else query_columns  # equal for all rows
        bias = None if scores is None else scores.between(placed, columns)  # (rows or 1, H, Q, T)
        # One query after equally long rows attends to every column: no mask.
        if count == 1 and cache.even and (window is None or cache.used <= window):
            return bias
        visible = columns[:, None] <= query_columns[..., None]  # (rows, Q, T)
        if window is not None:
            visible &= columns[:, None] >= query_columns[..., None] - window
        visible = visible[:, None]
        if bias is None:
            bias = self.head.pieces.new_zeros(())
        return torch.where(visible, bias, float("-inf"))


class MaskedStepDecoder(LeftToRightDecoder):
    """A decoder for models that predict a piece at a [MASK] in its position (UniLM, Dong et al. 2019, section 2.4).

    Prompts end with this [MASK]. A step reads the piece that replaces it and the next [MASK]. The keys and values of a
    [MASK] are not cached, since no generated token attends to one.
    """

    mask: int

    def begin(self, prompts: Sequence[Example], *, most: int, beams: int = 1) -> Tensor:
        """Read the prompts, one row each, and return the scores (rows, V) at their [MASK]."""
        self.mask = int(prompts[0].ids[-1])
        self.kind = self._kind(len(prompts) * beams, most)
        return self.read(prompts, most=most, spare=1)

    def _kind(self, rows: int, most: int) -> StepKind:
        return super()._kind(2 * rows, most)  # a step reads two tokens of each row

    def step(self, pieces: Tensor) -> Tensor:
        """Read one more piece of each row, (rows,), and return the scores (rows, V) at the [MASK] after it."""
        return self.advance(torch.stack([pieces, torch.full_like(pieces, self.mask)], dim=1))


def decoder_of(backbone: Backbone, head: Head) -> CachedDecoder | None:
    """Return a decoder of a backbone and a head that predicts pieces; None if they cannot generate text."""
    if isinstance(backbone, WritingBackbone):
        return backbone.decoder(head)
    if not isinstance(backbone, Transformer) or not isinstance(head, MaskedLanguageHead) or not backbone.writes(head):
        return None
    if head.writes is None:
        return LeftToRightDecoder(backbone, head)
    return (MaskedStepDecoder if head.writes == "masked" else LeftToRightDecoder)(backbone, head, segment=TARGET)


class SourceDecoder(LeftToRightDecoder):
    """A decoder in evaluation mode. It caches the keys and values (sources, H, S, K) of the sources for each layer.

    Every prompt has a source. All prompts have the same number of pieces, usually just the start piece. Beams of a text
    are neighbouring rows and attend to one copy of its source: `rows_each` rows to each source, in order.
    """

    def __init__(self, backbone: Transformer, head: MaskedLanguageHead, encoder: Callable[[Batch], States]) -> None:
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
