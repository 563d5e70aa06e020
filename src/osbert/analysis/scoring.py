"""The likelihood of a text by a language model: settings and results. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Masking = Literal["piece", "word"]
"""What is masked while a piece is scored: the piece alone, or also the rest of its word."""


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Settings of the scoring of texts."""

    masking: Masking = "piece"
    """piece: each piece is masked by itself (Salazar et al. 2020); word: the pieces behind it in its word as well
    (Kauf and Ivanova 2023), as the end of a long word gives away its beginning. Left-to-right models mask nothing."""


@dataclass(frozen=True, kw_only=True)
class PieceLikelihood:
    """A piece of a text, characters `start` to `end`, with its log-probability in nats.

    That is None for the first piece if a left-to-right model reads nothing before it.
    """

    piece: str
    start: int
    end: int
    log_probability: float | None


@dataclass(frozen=True, kw_only=True)
class TextLikelihood:
    """The log-likelihood of a text in nats, the sum over its pieces, with the numbers to normalise it by.

    For a masked language model it is the pseudo-log-likelihood: each piece is predicted from all others, and the sums
    do not define a distribution over texts. `unknown`: the number of pieces outside the vocabulary, whose scores mean
    nothing.
    """

    text: str
    log_likelihood: float
    pieces: Sequence[PieceLikelihood]
    words: int
    unknown: int

    @classmethod
    def of(
        cls, text: str, pieces: Sequence[PieceLikelihood], *, starts: Sequence[bool], unknown: int
    ) -> TextLikelihood:
        """Sum up pieces. `starts`: whether each begins a word. `unknown`: the number of unknown pieces."""
        scored = [piece.log_probability for piece in pieces if piece.log_probability is not None]
        words = sum(start for start, piece in zip(starts, pieces, strict=True) if piece.log_probability is not None)
        return cls(text=text, log_likelihood=math.fsum(scored), pieces=pieces, words=words, unknown=unknown)

    @property
    def tokens(self) -> int:
        """Return the number of pieces with a log-probability."""
        return sum(piece.log_probability is not None for piece in self.pieces)

    @property
    def perplexity(self) -> float:
        """Return the perplexity per piece; NaN if no piece has a log-probability.

        For a masked language model it is the pseudo-perplexity of Salazar et al. (2020).
        """
        return perplexity(self.log_likelihood, self.tokens)

    @property
    def word_perplexity(self) -> float:
        """Return the perplexity per word, which can be compared between vocabularies."""
        return perplexity(self.log_likelihood, self.words)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "text": self.text,
            "log_likelihood": self.log_likelihood,
            "tokens": self.tokens,
            "words": self.words,
            "unknown": self.unknown,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            "pieces": [vars(piece) for piece in self.pieces],
        }

    def lines(self) -> Iterator[str]:
        """Yield the sum with its perplexities, and each piece with its log-probability."""
        yield (
            f"log-likelihood {self.log_likelihood:.4f} of {self.tokens:,} pieces; perplexity {self.perplexity:,.2f} "
            f"per piece, {self.word_perplexity:,.2f} per word"
        )
        for piece in self.pieces:
            score = "       -" if piece.log_probability is None else f"{piece.log_probability:8.4f}"
            yield f"{score}  {piece.piece}"
        if self.unknown:
            yield f"{self.unknown:,} of them unknown: the vocabulary lacks what stands there, and says nothing of it."


def perplexity(log_likelihood: float, count: int) -> float:
    """Return exp(-log_likelihood / count) (Jelinek et al. 1977); inf if too large for a float, NaN if count is 0.

    >>> round(perplexity(-4.605170185988092, 2), 6)
    10.0
    """
    if not count:
        return math.nan
    exponent = -log_likelihood / count
    # math.exp raises OverflowError above about 709.
    return math.exp(exponent) if exponent < 700 else math.inf


def hidden_pieces(words: NDArray[np.bool_], index: int, masking: Masking) -> slice:
    """Return the slice of pieces to mask while the piece at index `index` is scored.

    `words` (n,): whether a word starts at each piece.

    >>> starts = np.array([True, True, False, False, True])
    >>> hidden_pieces(starts, 2, "piece"), hidden_pieces(starts, 2, "word")
    (slice(2, 3, None), slice(2, 4, None))
    """
    if masking == "piece":
        return slice(index, index + 1)
    # The word ends where the next one starts, or with the text.
    following = np.flatnonzero(words[index + 1 :])
    return slice(index, index + 1 + int(following[0]) if len(following) else len(words))
