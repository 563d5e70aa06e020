"""The encoder-decoder: a Transformer reads a text, another generates one from it. The family of T5 and BART."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.contract import Head, HeadVectors, States, StepSize, matrix_weights
from osbert.models.families.transformer import Transformer
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.transformer.embeddings import Embeddings
from osbert.models.transformer.layout import Layout
from osbert_lab.writing.contract import WritingBackbone
from osbert_lab.writing.decoder_block import DecoderBlock
from osbert_lab.writing.decoders import SourceDecoder
from osbert_lab.writing.pair_architecture import PairArchitecture


class _Decoder(Transformer):
    """The decoder side, which shares the piece embeddings of the encoder."""

    block = DecoderBlock

    def __init__(self, sizes: PairArchitecture, pieces: nn.Embedding) -> None:
        super().__init__(sizes.decoder_side)
        self.embeddings = Embeddings(sizes.decoder_side, pieces)
        if self.embeddings.distance_scores is not None:
            self.embeddings.distance_scores.past = True

    def decode(self, batch: Batch, source: Tensor, layout_of_source: Layout, *, pieces: Tensor | None = None) -> Tensor:
        """Return the last layer's states (N, D) of a batch, given the encoder's states of its source.

        `pieces` (N, D): the embeddings of its pieces, if known.
        """
        layout = self.layout(batch)
        across = layout.across(layout_of_source)
        hidden = self.embeddings(batch, pieces)
        for block, seen in zip(self.depth, self.layouts(layout), strict=True):
            assert isinstance(block, DecoderBlock)
            hidden = block.decode(hidden, seen, source, across)
        return self.top(hidden, batch)


class Pair(WritingBackbone):
    """An encoder and a decoder that share the table of pieces (Raffel et al. 2020, section 2.1).

    If the batch has a source, the states are those of the decoder. If not, the setting `reading` decides: the encoder
    reads the text alone, or both sides do. `stack`, `mixers`, `layers` and `weights` are those of the encoder.
    """

    settings = PairArchitecture
    architecture: PairArchitecture
    attends = True

    def __init__(self, architecture: PairArchitecture) -> None:
        """Make the layers; their weights are torch's own until `initialise` or a reader fills them."""
        super().__init__()
        feedforward = architecture.feedforward or 4 * architecture.width
        self.architecture = architecture = architecture.replace(feedforward=feedforward)
        self.encoder = Transformer(architecture.encoder_side)
        self.writer = _Decoder(architecture, self.encoder.embedding)

    @property
    def stack(self) -> Sequence[nn.Module]:
        """Return the embeddings, then each layer's block, of the encoder."""
        return self.encoder.stack

    @property
    def mixers(self) -> Sequence[nn.Module]:
        """Return the output projection of attention of each encoder layer, from (N, H * K)."""
        return self.encoder.mixers

    @property
    def above(self) -> Sequence[nn.Module]:
        """Return the modules above the blocks of both sides, which every fine-tuning trains."""
        return [*self.encoder.above, self.writer.norm, *self.writer.above]

    @property
    def embedding(self) -> nn.Embedding:
        """Return the table of piece embeddings (V, D)."""
        return self.encoder.embedding

    def initialise(self) -> None:
        """Draw all weights afresh."""
        self.encoder.initialise()
        self.writer.initialise()

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the decoder's states, with those of last tokens as summaries; without a source see `Pair`."""
        source, pieces = batch.source, None
        if source is None:
            if self.architecture.reading == "encoder":
                return self.encoder(batch, read)
            before, source = previous_index(batch), batch
            # The same lookup as the encoder's, then reordered: hooks that replace embeddings affect both sides alike.
            pieces, batch = self.embedding(batch.ids)[before], batch.replace_columns(ids=batch.ids[before])
        layout = self.encoder.layout(source)
        hidden = self.writer.decode(batch, self.encoder(source).hidden, layout, pieces=pieces)
        return self.writer.summarise(hidden, batch)

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield the encoder's states of a batch without a source, layers + 1 of (N, D)."""
        return self.encoder.layers(batch)

    def weights(self, batch: Batch, states: Iterable[Tensor] | None = None) -> Iterator[list[Tensor]]:
        """Yield each layer's attention weights of the encoder, (H, T, T) a sequence, queries in rows."""
        return self.encoder.weights(batch, states)

    def head_vectors(self, batch: Batch, states: Iterable[Tensor] | None = None) -> Iterator[HeadVectors]:
        """Yield the queries, keys, values and output matrices of each encoder layer."""
        return self.encoder.head_vectors(batch, states)

    def decoder(self, head: Head) -> SourceDecoder | None:
        """Return the decoder that generates texts from their sources; None for a head that does not predict pieces."""
        if not isinstance(head, MaskedLanguageHead):
            return None
        return SourceDecoder(self.writer, head, self.encoder)

    def readable(self, batch: Batch) -> Tensor | None:
        """Return the tokens (R,) that suffice if the encoder alone reads the batch; None for all."""
        alone = batch.source is None and self.architecture.reading == "encoder"
        return self.encoder.readable(batch) if alone else None

    def summaries(self, batch: Batch) -> Tensor:
        """Return the index (B,) of each sequence's summary token in the batch."""
        alone = batch.source is None and self.architecture.reading == "encoder"
        return (self.encoder if alone else self.writer).summaries(batch)

    def flops(self, size: StepSize) -> int:
        """Return the FLOPs of one forward pass of both sides."""
        if size.source is None:
            if self.architecture.reading == "encoder":
                return self.encoder.flops(size)
            # Both sides read the same text.
            size = replace(size, source=size, cross_pairs=size.pairs)
        assert size.source is not None
        sizes, writer = self.architecture, self.writer
        crossing = [block.cross for block in writer.depth if isinstance(block, DecoderBlock)]
        # Keys and values of cross-attention are computed for source tokens, the rest for written ones.
        of_source = sum(matrix_weights(cross.inward) for cross in crossing)
        of_target = sum(map(matrix_weights, writer.depth)) - of_source
        pairs = (size.pairs + size.cross_pairs) * len(crossing) * sizes.heads * sizes.key_width
        below = self.encoder.flops(size.source)
        pooler = size.sequences * matrix_weights(writer.pooler)
        return below + 2 * (size.tokens * of_target + size.source.tokens * of_source + pooler) + 4 * pairs


def previous_index(batch: Batch) -> Tensor:
    """Return the index (N,) of the token before each token of a batch; before the first of a sequence, of its last.

    A decoder that reads the same text as the encoder thus starts with the end piece, and the state at an index has not
    yet read the token of that index (Lewis et al. 2020, section 3.2, and the authors' code).
    """
    before = torch.arange(-1, batch.tokens - 1, device=batch.ids.device)
    before[batch.starts] = functional.pad(batch.starts[1:], (0, 1), value=batch.tokens) - 1
    return before
