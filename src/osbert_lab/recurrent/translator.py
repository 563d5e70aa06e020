"""The LSTM translator: a bidirectional encoder, whose states are CoVe, and a decoder with attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Head, States, StepSize, matrix_weights
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.initialisation import initialise
from osbert.text.file_tokenizer import AnyTokenizer
from osbert_lab.recurrent.decoder import RecurrentDecoder
from osbert_lab.recurrent.lstm import Steps, both_ends
from osbert_lab.recurrent.translation_layers import AttentiveWriter, EncoderLayer, LayerState, ReadSource
from osbert_lab.recurrent.translator_architecture import TranslatorArchitecture
from osbert_lab.writing.contract import WritingBackbone


class Translator(WritingBackbone):
    """Batch -> States (McCann et al. 2017, sections 3 and 4). Both languages have one table of vectors, or one each.

    Without a source the states are the encoder's (N, D): its last layer is CoVe(w), its lowest layer the vector of the
    piece, twice. With a source they are the decoder's outputs (N, D / 2), which only heads that predict pieces read.
    """

    settings = TranslatorArchitecture
    architecture: TranslatorArchitecture

    def __init__(self, architecture: TranslatorArchitecture) -> None:
        """Make the layers; their weights are torch's own until `initialise` or a reader fills them."""
        super().__init__()
        self.architecture = architecture
        self.words = nn.Embedding(architecture.vocabulary, architecture.side)
        self.target_words = (
            nn.Embedding(architecture.vocabulary, architecture.side) if architecture.own_tables else None
        )
        self.spelling: Sequence[str] = ()
        """The pieces of the vocabulary, in a model that is made for a tokenizer."""
        widths = [architecture.side, *[architecture.width] * (architecture.layers - 1)]
        self.blocks = nn.ModuleList(EncoderLayer(width, architecture) for width in widths)
        self.writer = AttentiveWriter(architecture)

    @property
    def stack(self) -> Sequence[nn.Module]:
        """Return the table of vectors, then each layer of the encoder."""
        return [self.words, *self.blocks]

    @property
    def above(self) -> Sequence[nn.Module]:
        """Return the decoder, which the layers of the encoder do not include."""
        return [self.writer] if self.target_words is None else [self.target_words, self.writer]

    @property
    def written_words(self) -> nn.Embedding:
        """Return the table of the vectors (V, D / 2) of the texts that are written."""
        return self.target_words or self.words

    def read_vocabulary(self, tokenizer: AnyTokenizer) -> None:
        """Keep the spelling of the pieces, by which the vectors of words are found."""
        self.spelling = tokenizer.vocabulary

    @property
    def embedding(self) -> nn.Embedding:
        """Return the table of vectors (V, D / 2)."""
        return self.words

    def initialise(self) -> None:
        """Initialise all weights: the LSTM layers as torch does, the others from N(0, `deviation`)."""
        initialise(self, self.architecture.deviation)

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the encoder's states, or with a source the decoder's; see `Translator`."""
        if batch.source is None:
            *_, (hidden, _) = self._encode_layers(batch)
            summary = both_ends(hidden, batch)
        else:
            hidden = self.writer(self.written_words(batch.ids), batch, self.read(batch.source))
            # Unused; the state after the last piece has seen the whole text.
            summary = hidden[torch.cat([batch.starts[1:] - 1, batch.starts.new_tensor([batch.tokens - 1])])]
        return States(hidden=hidden, summary=summary, pooled=summary)

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield the encoder's states, layers + 1 of (N, D): the vectors twice, then each layer's."""
        vectors = self.words(batch.ids)
        yield torch.cat([vectors, vectors], 1)
        for hidden, _ in self._encode_layers(batch):
            yield hidden

    def read(self, source: Batch) -> ReadSource:
        """Return what the decoder reads of the encoded sources."""
        encoded = [*self._encode_layers(source)]
        return ReadSource.of(source, encoded[-1][0], [ends for _, ends in encoded])

    def decoder(self, head: Head) -> RecurrentDecoder | None:
        """Return the decoder that generates texts from their sources; None for a head that does not predict pieces."""
        return RecurrentDecoder(self, head) if isinstance(head, MaskedLanguageHead) else None

    def flops(self, size: StepSize) -> int:
        """Return the FLOPs of one forward pass: of the encoder, and with a source of the decoder."""
        if size.source is None:
            return super().flops(size)
        # Scores of the attention and its mean, each one product per pair of tokens.
        attention = 4 * size.cross_pairs * self.architecture.width
        return super().flops(size.source) + 2 * size.tokens * matrix_weights(self.writer) + attention

    def _encode_layers(self, batch: Batch) -> Iterator[tuple[Tensor, LayerState]]:
        """Yield each layer's states (N, D), and its final states (B, D)."""
        steps, hidden = Steps.of(batch), self.words(batch.ids)
        for block in self.blocks:
            hidden, ends = block(hidden, batch, steps)
            yield hidden, ends
