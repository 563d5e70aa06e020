"""The settings of CoVe's translator: an encoder and a decoder of LSTM layers, joined by attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from osbert.models.sizes import Sizes


@dataclass(frozen=True, kw_only=True)
class TranslatorArchitecture(Sizes):
    """The sizes of an attentional translation model (McCann et al. 2017, section 3); the defaults are the paper's."""

    family: ClassVar[str] = "translator"
    has_decoder = True
    segments = 0
    piece_transform = False
    piece_biases = True
    writes_only = True

    layers: int = 2
    """LSTM layers of the encoder, and of the decoder."""
    width: int = 600
    """Size of the hidden state of a token: half of it reads from the left, half from the right. The decoder's states
    have the same width; vectors of pieces have half of it."""
    vocabulary: int = 0
    """Pieces in the vocabulary, of both languages; 0 for the tokenizer's."""
    length: int = 512
    """Most tokens in a sequence. The weights do not depend on it."""
    own_tables: bool = False
    """Whether each language has a table of vectors of its own: one for texts that are read, one for those that are
    written. Else both share one."""
    tied: bool = False
    """Whether the output layer shares the vectors of the pieces that are read."""
    dropout: float = 0.2
    """Dropout rate of the input of each LSTM layer and of the output layer."""
    deviation: float = 0.05
    """Standard deviation of the initial weights outside of the LSTM layers, and of heads."""

    @property
    def language_objective(self) -> str:
        """Return translation, the objective of its pretraining."""
        return "translation"

    @property
    def any_length(self) -> bool:
        """Return True: the weights do not depend on the length."""
        return True

    @property
    def side(self) -> int:
        """The width of a state in one direction, and of a piece's vector."""
        return self.width // 2

    def activations(self, length: int) -> float:
        """Return about how many numbers a layer saves per token: the gates, cells and states of both directions."""
        return 7 * self.width

    def problems(self) -> tuple[str, ...]:
        """Describe every setting that cannot be built."""
        return tuple(self._problems())

    def _problems(self) -> Iterator[str]:
        for name in ("layers", "vocabulary", "length"):
            if getattr(self, name) < 1:
                yield f"{name} is {getattr(self, name)}, but must be at least 1"
        if self.width < 2 or self.width % 2:
            yield f"width is {self.width}, but must be even: each direction has half of it"
        if self.tied and self.own_tables:
            yield "tied shares the vectors of pieces that are read, and own_tables keeps them apart: set one of them"
        if not 0 <= self.dropout < 1:
            yield f"dropout is {self.dropout:g}, but must be at least 0 and below 1"
