"""The settings of ELMo's bidirectional language model: characters, convolutions, and two stacks of LSTM layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from osbert.models.sizes import Sizes

CONVOLUTIONS = 7
"""Number of convolution widths: 1 to 7 characters."""
LEAST_FILTERS = 2 ** (CONVOLUTIONS - 1)


@dataclass(frozen=True, kw_only=True)
class BilmArchitecture(Sizes):
    """The sizes of a bidirectional language model (Peters et al. 2018, section 3.1); the defaults are the paper's."""

    family: ClassVar[str] = "bilm"
    segments = 0
    tied = False
    separate_directions = True

    layers: int = 2
    """LSTM layers of each direction."""
    width: int = 1024
    """Size of the hidden state of a word: the first half reads from the left, the second half from the right."""
    cells: int = 4096
    """Memory cells of an LSTM layer in one direction, projected to half of the width."""
    clip: float = 3.0
    """Largest absolute value of a memory cell and of a projected state; 0 for no limit."""
    spelling: int = 50
    """Most bytes of a word, including the marks of its start and end; longer words are truncated."""
    characters: int = 16
    """Width of the embedding of a byte."""
    filters: int = 2048
    """Convolution filters. Half of them are 7 bytes wide, a quarter 6 bytes, and so on; the rest are 1 byte wide."""
    highways: int = 2
    """Highway layers above the convolutions."""
    vocabulary: int = 0
    """Words in the vocabulary; 0 for the tokenizer's."""
    length: int = 512
    """Most words in a sequence."""
    dropout: float = 0.1
    """Dropout rate of the input of each LSTM layer and of the language-model head."""
    deviation: float = 0.02
    """Standard deviation of the initial weights of a task's head."""

    @property
    def any_length(self) -> bool:
        """Return True: the weights do not depend on the length."""
        return True

    @property
    def side(self) -> int:
        """The width of a state in one direction."""
        return self.width // 2

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of filters of each width, 1 to 7 bytes.

        >>> BilmArchitecture().counts
        (32, 32, 64, 128, 256, 512, 1024)
        """
        wider = [self.filters >> (CONVOLUTIONS + 1 - width) for width in range(2, CONVOLUTIONS + 1)]
        return (self.filters - sum(wider), *wider)

    def resize(self, layers: int, width: int) -> BilmArchitecture:
        """Return these settings with other `layers` and `width`; cells and filters stay in proportion to the width."""
        cells, filters = (max(1, round(size * width / self.width)) for size in (self.cells, self.filters))
        return self.replace(layers=layers, width=width, cells=cells, filters=max(filters, LEAST_FILTERS))

    def activations(self, length: int) -> float:
        """Return about how many numbers a layer saves per word: gates and cells of both directions, and states."""
        return 2 * 8 * self.cells + 3 * self.width

    def problems(self) -> tuple[str, ...]:
        """Describe every setting that cannot be built."""
        return tuple(self._problems())

    def _problems(self) -> Iterator[str]:
        for name in ("layers", "cells", "characters", "vocabulary", "length"):
            if getattr(self, name) < 1:
                yield f"{name} is {getattr(self, name)}, but must be at least 1"
        if self.width < 2 or self.width % 2:
            yield f"width is {self.width}, but must be even: each direction has half of it"
        elif self.cells <= self.side:
            yield f"cells is {self.cells}, but must be above {self.side}, half of the width"
        if self.filters < LEAST_FILTERS:
            yield f"filters is {self.filters}, but must be at least {LEAST_FILTERS}: there are {CONVOLUTIONS} widths"
        if self.spelling < CONVOLUTIONS:
            yield f"spelling is {self.spelling}, but must be at least {CONVOLUTIONS}, the width of a convolution"
        if self.highways < 0:
            yield f"highways is {self.highways}, but cannot be below 0"
        if self.clip < 0:
            yield f"clip is {self.clip:g}, but cannot be below 0"
        if not 0 <= self.dropout < 1:
            yield f"dropout is {self.dropout:g}, but must be at least 0 and below 1"
