"""The bidirectional language model: characters of words, then LSTM layers from both sides. The family of ELMo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, States, StepSize, matrix_weights
from osbert.text.file_tokenizer import AnyTokenizer
from osbert_lab.recurrent.bilm_architecture import BilmArchitecture
from osbert_lab.recurrent.characters import CharacterEncoder, spellings
from osbert_lab.recurrent.lstm import DirectionsLayer, ProjectedLSTM, Steps, both_ends


class Bilm(Backbone):
    """Batch -> States (Peters et al. 2018, section 3). A state concatenates the states of both directions.

    The lowest layer has the word's own vector twice. Each sequence starts from states of 0, so its states do not depend
    on earlier texts, unlike those of bilm-tf.
    """

    settings = BilmArchitecture
    architecture: BilmArchitecture

    def __init__(self, architecture: BilmArchitecture) -> None:
        """Make the layers; their weights are torch's own until `initialise` or a reader fills them."""
        super().__init__()
        self.architecture = architecture
        self.words = CharacterEncoder(architecture)
        self.blocks = nn.ModuleList(DirectionsLayer(architecture, residual=n > 0) for n in range(architecture.layers))

    @property
    def stack(self) -> Sequence[nn.Module]:
        """Return the layers that read characters, then each LSTM layer, of both directions."""
        return [self.words, *self.blocks]

    @property
    def embedding(self) -> None:
        """Return None: there is no table, since vectors of words are computed from their characters."""
        return None

    def read_vocabulary(self, tokenizer: AnyTokenizer) -> None:
        """Set the spelling of each piece (V, longest), and the size V of the vocabulary, from a tokenizer."""
        spelling = spellings(tokenizer, self.architecture.spelling)
        self.words.spelling = spelling.to(self.words.spelling.device)
        self.architecture = self.architecture.replace(vocabulary=len(spelling))

    def initialise(self) -> None:
        """Initialise all weights."""
        self.words.initialise()
        for part in self.modules():
            if isinstance(part, ProjectedLSTM):
                part.initialise()

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the last layer's states. Both halves of a summary have read the whole sequence."""
        *_, hidden = self.layers(batch)
        summary = both_ends(hidden, batch)
        return States(hidden=hidden, summary=summary, pooled=summary)

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield layers + 1 states (N, D): the words' own vectors twice, then each layer's."""
        steps = Steps.of(batch)
        words = self.words(batch.ids)
        hidden = torch.cat([words, words], 1)
        yield hidden
        for block in self.blocks:
            hidden = block(hidden, steps)
            yield hidden

    def flops(self, size: StepSize) -> int:
        """Return the FLOPs of one forward pass, as if no word occurred twice among its tokens."""
        sizes = self.architecture
        # Each distinct word is encoded once.
        words = min(size.tokens, sizes.vocabulary)
        filters = sum(width * count for width, count in enumerate(sizes.counts, start=1))
        # A filter of width w has w * characters weights, applied at every character of the spelling.
        characters = sizes.spelling * sizes.characters * filters
        within = characters + matrix_weights(self.words.highways) + matrix_weights(self.words.projection)
        return super().flops(size) + 2 * words * within
