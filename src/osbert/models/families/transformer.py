"""The Transformer: embeddings, blocks of attention and feed-forward, and a pooler. The family of BERT."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.architecture import Architecture
from osbert.models.contract import Backbone, Head, HeadVectors, States, StepSize, matrix_weights
from osbert.models.fast.linear import Linear
from osbert.models.forms import pool_states
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.initialisation import initialise
from osbert.models.memory import Continuation, Past
from osbert.models.transformer.added_layers import Adapter, Recurrent
from osbert.models.transformer.block import ACTIVATIONS, Block, norm, norm_of
from osbert.models.transformer.embeddings import DistanceTable, Embeddings
from osbert.models.transformer.layout import Layout, lay_out
from osbert.models.transformer.relative import RelativeScores


class Transformer(Backbone):
    """Embeddings, blocks and a pooler."""

    settings = Architecture
    architecture: Architecture
    attends = True
    block: type[Block] = Block

    def __init__(self, architecture: Architecture) -> None:
        """Make the layers; their weights are torch's own until `initialise` or a reader fills them."""
        super().__init__()
        architecture = replace(architecture, feedforward=architecture.feedforward or 4 * architecture.width)
        self.architecture = architecture
        self.embeddings = Embeddings(architecture)
        self.blocks = nn.ModuleList()
        for layer in range(architecture.blocks):
            self.blocks.append(self.block(architecture, layer))
        self.norm = norm(architecture) if architecture.normalization == "pre" else nn.Identity()
        self.recurrent = (
            Recurrent(architecture.width, architecture.recurrent, dropout=architecture.dropout)
            if architecture.recurrent
            else None
        )
        self.pooler: nn.Module = nn.Identity()
        self.pooling = None
        if architecture.has_pooler:
            self.pooler = Linear(architecture.width, architecture.width, bias=architecture.head_biases)
            self.pooling = ACTIVATIONS[architecture.pooling]
        elif architecture.pooling == "unit":
            self.pooling = functional.normalize
        self.pooler_norm: nn.Module = nn.Identity()
        if architecture.head_transform:
            self.pooler_norm = norm_of(architecture, architecture.width, biases=architecture.head_biases)

    @property
    def stack(self) -> Sequence[nn.Module]:
        return [self.embeddings, *self.depth]

    @property
    def depth(self) -> list[Block]:
        """Return the block of each layer, from the bottom up; neighbours may share one (ALBERT, section 3.1)."""
        sizes = self.architecture
        return [self.blocks[layer * sizes.blocks // sizes.layers] for layer in range(sizes.layers)]  # type: ignore[misc]

    @property
    def mixers(self) -> Sequence[nn.Module]:
        return [block.attention.outward for block in self.depth]

    @property
    def above(self) -> Sequence[nn.Module]:
        """Return the pooler, and the recurrent layers if there are any."""
        return [self.pooler, self.pooler_norm, *([] if self.recurrent is None else [self.recurrent])]

    @property
    def embedding(self) -> nn.Embedding:
        return self.embeddings.pieces

    def share_tables(self, owner: Self) -> None:
        """Share the tables of pieces, positions, segments and tasks of `owner`, whose embeddings are as wide."""
        embeddings, others = self.embeddings, owner.embeddings
        embeddings.pieces, embeddings.positions, embeddings.segments = others.pieces, others.positions, others.segments
        embeddings.tasks = others.tasks

    def initialise(self) -> None:
        """Initialise all weights; adapters start as the identity."""
        initialise(self, self.architecture.deviation)
        for part in self.modules():
            if isinstance(part, Adapter):
                part.silence()
            elif isinstance(part, RelativeScores):
                part.initialise(self.architecture.deviation)
        if self.architecture.scaled_outputs:
            for block in {*self.depth}:
                for layer in (block.attention.outward, block.down):
                    # GPT-2, section 2.3: the residual sum of 2 L terms keeps its variance.
                    layer.weight.data /= math.sqrt(2 * self.architecture.layers)
        if self.architecture.neighbours:
            for block in {*self.depth}:
                block.attention.face_neighbours(self.architecture.neighbours)

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        # Blocks below the last one need all tokens, for its keys; the last one only has the queries that are read.
        layout = self.layout(batch)
        hidden = self.embeddings(batch)
        *others, last = zip(self.depth, self.layouts(layout), strict=True)
        for block, seen in others:
            hidden = block(hidden, seen)
        block, seen = last
        hidden = self.top(block(hidden, seen if read is None else seen.reading(read, batch.reads)), batch)
        if read is not None:
            # NaN, not 0: a head that reads a state it should not makes the loss NaN.
            everywhere = hidden.new_full((len(batch.ids), hidden.shape[1]), torch.nan)
            hidden = everywhere.index_copy_(0, read, hidden)  # (N, D)
        return self.summarise(hidden, batch)

    def forward_with_past(self, batch: Batch, past: Past, read: Tensor | None = None) -> tuple[States, Past]:
        joined = Continuation(batch, past)
        layout = self.layout(joined.batch)
        # Remembered tokens have no queries. Without any past the plain layout has the faster runs.
        layouts = self.layouts(layout.reading(joined.present, batch.lengths) if sum(past.lengths) else layout)
        # The last block's queries may be fewer: its layout is derived from the one without `reading`.
        *_, last = self.layouts(layout)
        inputs: list[Tensor] = []
        hidden = self.embeddings(batch)
        for number, (block, seen) in enumerate(zip(self.depth, layouts, strict=True)):
            inputs.append(joined.rows(number, hidden))
            if read is not None and number + 1 == len(self.depth):
                seen = last.reading(joined.present[read], batch.reads)
            hidden = block(inputs[-1], seen)
        hidden = self.top(hidden, batch)
        if read is not None:
            hidden = hidden.new_full((len(batch.ids), hidden.shape[1]), torch.nan).index_copy_(0, read, hidden)
        return self.summarise(hidden, batch), joined.next(inputs)

    def pool(self, summary: Tensor) -> Tensor:
        """Return the pooled states (..., D) of the summaries (..., D)."""
        return self.pooler_norm(self.pooling(self.pooler(summary)) if self.pooling else summary)

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        layout = self.layout(batch)
        hidden = self.embeddings(batch)
        yield hidden
        *others, last = zip(self.depth, self.layouts(layout), strict=True)
        for block, seen in others:
            hidden = block(hidden, seen)
            yield hidden
        block, seen = last
        yield self.top(block(hidden, seen), batch)

    def weights(self, batch: Batch, states: Iterable[Tensor] | None = None) -> Iterator[list[Tensor]]:
        """Yield each layer's attention weights, (H, T, T) a sequence, queries in rows. Call it in evaluation mode."""
        layouts = self.layouts(self.layout(batch))
        for block, hidden, layout in zip(self.depth, self.layers(batch) if states is None else states, layouts):
            yield block.weights(hidden, layout)

    def head_vectors(self, batch: Batch, states: Iterable[Tensor] | None = None) -> Iterator[HeadVectors]:
        """Yield each layer's queries, keys, values and output matrices. Call it in evaluation mode."""
        layouts = self.layouts(self.layout(batch))
        for block, hidden, layout in zip(self.depth, self.layers(batch) if states is None else states, layouts):
            yield block.head_vectors(hidden, layout)

    def writes(self, head: Head) -> bool:
        """Return whether a language head writes texts piece by piece, with cached keys.

        Keys can be cached if no state depends on a later token, and their scores on no learned distances or segments. A
        model trained to write from a source reads the source as a prefix whose tokens attend to each other. Prompts of
        a head of the form text have an order, so its backbone need not be causal itself.
        """
        keyless = isinstance(self.embeddings.distances, DistanceTable) or self.architecture.segment_scores
        if not isinstance(head, MaskedLanguageHead) or keyless or self.recurrent is not None:
            return False
        return head.writes is not None or self.architecture.causal or head.form == "text"

    def layout(self, batch: Batch) -> Layout:
        """Return the layout of a batch for the blocks: memory, mask, rotary positions and biases of distances."""
        sizes = self.architecture
        width = sizes.key_width if sizes.positions == "rotary" else 0
        layout = lay_out(batch, rotary=width, base=sizes.rotary_base, causal=sizes.direction == "left_to_right")
        layout.unseen = self.embeddings.unseen(batch)
        if self.embeddings.distances is not None:
            layout.distances = self.embeddings.distances(layout)
            layout.segments = batch.segments if sizes.segment_scores else None
        return layout if self.embeddings.distance_scores is None else self.embeddings.distance_scores(layout)

    def read_as_query(self, piece: int) -> None:
        """Treat tokens of `piece` ([MASK]) as unseen in batches without unseen tokens of their own (XLNet, 2.3)."""
        self.embeddings.query_piece = piece

    def readable(self, batch: Batch) -> Tensor | None:
        """Return the labelled and summary tokens (R,) if the last block needs no other queries; None for all.

        Most of the last block's work is then skipped for the other tokens.
        """
        sizes = self.architecture
        alone = sizes.direction == "both" and self.recurrent is None and sizes.summary in ("token", "first")
        return batch.read if alone and 2 * len(batch.read) < batch.tokens else None

    def summaries(self, batch: Batch) -> Tensor:
        """Return the index (B,) of each sequence's summary token: its first, or its last seen one (see `States`)."""
        if not self.architecture.summary_is_last:
            return batch.starts
        ends = functional.pad(batch.starts[1:], (0, 1), value=batch.tokens)
        if batch.unseen is None:
            return ends - 1
        # before[i] counts the unseen tokens before token i; a difference counts those of a sequence.
        before = functional.pad(batch.unseen.cumsum(0), (1, 0))  # unseen tokens come last in their sequence
        return ends - 1 - (before[ends] - before[batch.starts])

    def layouts(self, layout: Layout) -> Iterator[Layout]:
        """Yield the layout of each block: `layout`, or its variant with a window for local blocks."""
        sizes = self.architecture
        for layer in range(sizes.layers):
            yield layout.local(sizes.window, sizes.local_base) if sizes.is_local(layer) else layout

    def summarise(self, hidden: Tensor, batch: Batch) -> States:
        """Return the states (N, D) of the last layer with the summaries and the pooled states of the sequences."""
        kind = self.architecture.summary
        if kind in ("mean", "late"):
            summary = torch.stack(pool_states(hidden, batch, "mean", batch.starts))  # (B, D)
        else:
            summary = hidden[self.summaries(batch)]
        if kind == "late":
            # late: the pooler is applied to each token, and its outputs are averaged.
            above = torch.stack(pool_states(self.pool(hidden), batch, "mean", batch.starts))
        else:
            above = self.pool(summary)
        return States(hidden=hidden, summary=summary, pooled=above)

    def top(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the final states (N, D) from the last block's output: final norm and recurrent layers."""
        hidden = self.norm(hidden)
        return hidden if self.recurrent is None else self.recurrent(hidden, batch)

    def flops(self, size: StepSize) -> int:
        """Return the FLOPs of one forward pass, by FORMULA of osbert_lab/planning/speed.py."""
        sizes = self.architecture
        # The last block computes keys and values for all tokens, everything else for the tokens that are read.
        last = self.depth[-1]
        inward = last.attention.inward
        # Two of three (or of two) stacked matrices of `inward` are keys and values.
        spared = _token_weights(last) - matrix_weights(inward) * 2 // last.attention.parts["inward.weight"]
        forward = 2 * size.tokens * sum(map(_token_weights, self.depth)) - 2 * (size.tokens - size.read) * spared
        if self.recurrent is not None:
            forward += 2 * size.tokens * matrix_weights(self.recurrent)
        if self.embeddings.projection is not None:
            forward += 2 * size.tokens * matrix_weights(self.embeddings.projection)
        # The last block is counted by read_pairs, local or not.
        local = sum(sizes.is_local(layer) for layer in range(sizes.layers - 1))
        pairs = size.pairs * (sizes.layers - 1 - local) + size.local_pairs * local + size.read_pairs
        if size.remembered:  # remembered tokens have keys and values, too
            pairs += size.tokens * size.remembered * sizes.layers
            forward += 2 * size.sequences * size.remembered * sizes.layers * matrix_weights(inward) * 2 // 3
        # A query has about twice as many distances as keys, and so has a key; in a causal model as many.
        factors = {"disentangled": 12, "distances": 6 if sizes.direction == "left_to_right" else 8}
        forward += factors.get(sizes.positions, 4) * pairs * sizes.heads * sizes.key_width
        return forward + 2 * size.sequences * matrix_weights(self.pooler)


def _token_weights(block: Block) -> int:
    """Return the number of matrix weights of a block that multiply tokens: all but those that multiply distances."""
    attention = block.attention
    of_distances = (attention.distance_inward, attention.relative)
    return matrix_weights(block) - sum(matrix_weights(module) for module in of_distances if module is not None)
