"""Span boundaries: masked spans are predicted a second time, from the tokens beside them (SpanBERT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from osbert.data.corrupt import corrupt_pieces
from osbert.data.example import Places, rows
from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.contract import Answers
from osbert.objectives.mlm import MaskedLanguage

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


def geometric(stop: float, longest: int) -> tuple[float, ...]:
    """Return the probabilities of 1 to `longest` words: Geo(stop), conditional on at most `longest`.

    >>> probabilities = geometric(0.2, 10)
    >>> round(sum(words * probability for words, probability in enumerate(probabilities, 1)), 1)
    3.8
    """
    probabilities = [stop * (1 - stop) ** words for words in range(longest)]
    return tuple(probability / sum(probabilities) for probability in probabilities)


SPANS = geometric(0.2, 10)


@dataclass(frozen=True, kw_only=True)
class SpanBoundary(MaskedLanguage):
    """Masks spans of whole words, and predicts each piece twice: from its own state, and from the span's boundary.

    Joshi et al. 2020, sections 3.1 and 3.2: the loss of a piece is -log P(x_i | x_i) - log P(x_i | y_i). y_i is
    computed from the states of the tokens before and after the span, and from the position of the piece in it. All
    pieces of a span are replaced alike. Spans that touch are one span.
    """

    title: ClassVar[str] = "masked spans and their boundaries"
    answers: ClassVar[Answers] = "others"  # two losses in one, which the unigram entropy is no baseline of
    alone: ClassVar[bool] = True

    unit: Literal["pieces", "words", "ngrams"] = "ngrams"
    """Always ngrams: spans of whole words."""
    ngrams: tuple[float, ...] = SPANS
    """The probabilities of spans of 1 word, of 2 words, and so on; by default Geo(0.2) up to 10, 3.8 on average."""
    reach: int = 20
    """Pieces of a span that its boundary predicts; further ones have the loss of their own state alone."""
    position_width: int = 200
    """Size of the embeddings of the positions in a span."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings out of range, and for units other than spans of words."""
        if self.unit != "ngrams" or self.unit_from:
            raise ValueError(
                f'unit must be "ngrams" and unit_from 0, not "{self.unit}" and {self.unit_from:g}: spans are runs of '
                "words. For spans of one word set ngrams = [1.0]"
            )
        super().__post_init__()
        if min(self.reach, self.position_width) < 1:
            raise ValueError(f"reach and position_width must be at least 1, not {self.reach} and {self.position_width}")

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return examples with masked spans; the labels are the original pieces."""
        index, counts = self._choose(examples, noise.stream(0))
        labels = examples.ids[index]
        ids = examples.ids.copy()
        ids[index] = corrupt_pieces(
            labels,
            counts,
            mask=self.mask,
            random=self.random,
            tokenizer=packer.tokenizer,
            noise=noise.stream(1),
            alike=first_pieces(index, counts),
        )
        targets = Targets(labels=labels, counts=counts, index=index)
        return examples.with_target(ids=ids, name=self.name, targets=targets)

    def head(self, backbone: Backbone) -> Head:
        """Return the masked-language head with a second prediction, from the boundary of each span."""
        from osbert_lab.spanbert.boundary_head import SpanBoundaryHead

        return SpanBoundaryHead(backbone, target=self.name, reach=self.reach, position_width=self.position_width)


def first_pieces(index: Places, counts: Places) -> Places:
    """Return for each chosen piece (M,) the number of the first one of its span among those of its example.

    Two examples with three and two chosen pieces:

    >>> first_pieces(np.array([4, 5, 8, 21, 22]), np.array([3, 2])).tolist()
    [0, 0, 2, 0, 0]
    """
    _, number = rows(counts)
    begins = (np.diff(index, prepend=-2) != 1) | (number == 0)
    return number[np.maximum.accumulate(np.where(begins, np.arange(len(index)), 0))]
