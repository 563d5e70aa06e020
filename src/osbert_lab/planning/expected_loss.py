"""The held-out loss to expect of a model size, tokens of training and a corpus: a rough fit to a few short runs.

As a fraction of the unigram entropy (the loss of guessing without context, known from the corpus alone),
the masked-LM loss is modelled as FLOOR + ((SIZE / weights)^STEEP + TEXT / tokens)^POWER: the form of Kaplan et al. 2020
(Scaling Laws for Neural Language Models, equation 1.5) plus a floor. A small model learns as fast as a large one at
first and then falls behind. Repeated text is worth less and less, as Muennighoff et al. 2023 measured
(Scaling Data-Constrained Language Models, the effective data D') on left-to-right models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOOR, POWER, STEEP = 0.12, 0.2, 1.5
SIZE, TEXT = 0.0368e6, 0.0864e6
"""The constants: SIZE in weights of the blocks' matrices, TEXT in tokens.

Fitted by least squares to MEASURED and to the published end of the line: BERT BASE, at most 131G tokens (a million
steps of 256 sequences of 512), at 1.38 nats (Devlin et al. 2019, Table 6: perplexity 3.99), a fraction of 0.21.
"""
MEASURED = (
    (0.394e6, 0.481e6, 0.830),
    (0.394e6, 0.95e6, 0.799),
    (0.394e6, 1.346e6, 0.741),
    (0.394e6, 2.1e6, 0.722),
    (0.394e6, 9.5e6, 0.625),
    (3.16e6, 0.481e6, 0.815),
)
"""Runs of the recipe cpu on film reviews and on documentation, as (weights, tokens, loss over unigram entropy)."""
UNCERTAIN, FAR = 0.03, 0.02
"""Largest relative error of the line on those runs, and its increase for each factor of ten beyond them."""
WORTH = 15.4
"""Epochs after the first in which repeating a text is worth 63% of new text (R* of Muennighoff et al.)."""
AS_NEW, USELESS = 4, 40
"""Epochs up to which repeated text is nearly as good as new text, and after which it hardly helps any more."""


@dataclass(frozen=True, kw_only=True)
class LossRange:
    """A range of losses in nats, clipped to possible values.

    `middle`: the centre of the range before clipping to the floor and to guessing, so that it can always be compared.
    """

    low: float
    high: float
    middle: float


def predict_loss(*, weights: float, tokens: float, corpus_tokens: float, unigram_entropy: float) -> LossRange:
    """Return the expected held-out masked-LM loss for `weights` in the blocks' matrices after training on `tokens`.

    `corpus_tokens`: tokens of the corpus, without repetition; `unigram_entropy` in nats.
    """
    if tokens <= 0:
        return LossRange(low=unigram_entropy, high=unigram_entropy, middle=unigram_entropy)
    worth = worth_as_new(tokens, corpus_tokens)
    fraction = FLOOR + ((SIZE / weights) ** STEEP + TEXT / worth) ** POWER
    sizes, lengths, _ = zip(*MEASURED)
    off = UNCERTAIN + FAR * (_decades_outside(weights, sizes) + _decades_outside(tokens, lengths))
    low, high = (min(1.0, max(FLOOR, fraction + sign * off)) * unigram_entropy for sign in (-1, 1))
    return LossRange(low=low, high=high, middle=fraction * unigram_entropy)


def worth_as_new(tokens: float, corpus_tokens: float) -> float:
    """Return the number of new tokens that are worth as much as `tokens` from a corpus of `corpus_tokens`."""
    if tokens <= corpus_tokens:
        return tokens
    repeats = tokens / corpus_tokens - 1
    # Muennighoff et al. 2023: the value of repetitions decays exponentially.
    return corpus_tokens * (1 + WORTH * (1 - math.exp(-repeats / WORTH)))


def _decades_outside(value: float, measured: tuple[float, ...]) -> float:
    return max(0.0, math.log10(min(measured) / value), math.log10(value / max(measured)))
