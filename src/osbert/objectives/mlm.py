"""Masked language modelling: predict the pieces at chosen positions from both sides (section 3.1, task 1)."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.corrupt import choose, choose_words, corrupt_pieces, quotas
from osbert.data.example import Places
from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.contract import Answers, Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


NGRAMS = (0.4, 0.3, 0.2, 0.1)
"""Probabilities of runs of 1 to 4 words, as in MacBERT (Cui et al. 2020)."""


@dataclass(frozen=True, kw_only=True)
class MaskedLanguage(Objective):
    """Chooses positions (never special tokens). Some of them show [MASK], some a random piece, the others stay.

    Devlin et al. 2019, section 3.1: 15% of the tokens are chosen; of these 80%, 10% and 10%.
    """

    answers: ClassVar[Answers] = "pieces"

    rate: float = 0.15
    """Fraction of a sequence's tokens that is predicted."""
    later_rates: tuple[float, ...] = ()
    """Rates that replace `rate` in the course of the run, one after the other (mmBERT: 0.15 and 0.05 after 0.3).
    Held-out text is always masked at `rate`, so that its losses can be compared."""
    later_from: tuple[float, ...] = ()
    """The fraction of the run's steps at which each of `later_rates` begins, ascending."""
    mask: float = 0.8
    """Fraction of the chosen positions that shows [MASK]."""
    random: float = 0.1
    """Fraction of the chosen positions that shows a random piece. The others show the piece itself."""
    limit: int = 0
    """Most predictions in a sequence, 0 for no limit (google-research/bert: 20 at length 128, 80 at 512)."""
    unit: Literal["pieces", "words", "ngrams"] = "pieces"
    """The unit that is masked: single pieces, whole words (whole-word masking), or runs of words (n-gram masking). A
    corpus with phrases has each phrase as one word (ERNIE 1.0)."""
    unit_from: float = 0.0
    """The fraction of the run's steps from which on `unit` is masked; before, single pieces are (the stages of ERNIE
    1.0). Held-out text is then masked in single pieces throughout."""
    ngrams: tuple[float, ...] = NGRAMS
    """With unit = "ngrams": the probabilities of runs of 1 word, of 2 words, and so on; their sum is 1."""
    unigram_start: bool = False
    """Start the vocabulary bias at the log unigram probabilities of the corpus instead of 0."""

    @property
    def pieces(self) -> str:
        """Return the name of the target that holds the true pieces."""
        return self.name

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must be a fraction between 0 and 1, not {self.rate}")
        if not all(0 < rate <= 1 for rate in self.later_rates):
            raise ValueError(f"later_rates must be fractions between 0 and 1, not {list(self.later_rates)}")
        if len(self.later_rates) != len(self.later_from):
            raise ValueError(
                f"later_from needs one value per rate in later_rates ({len(self.later_rates)}), the fraction of "
                f"the steps at which that rate begins; it has {len(self.later_from)}"
            )
        ascending = [0.0, *self.later_from, 1.0]
        if not all(before < after for before, after in itertools.pairwise(ascending)):
            raise ValueError(f"later_from must be ascending fractions between 0 and 1, not {list(self.later_from)}")
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1 + 1e-9:
            raise ValueError(
                f"mask and random are fractions whose sum must be at most 1, not {self.mask} + {self.random}"
            )
        if self.limit < 0:
            raise ValueError(f"limit must be 0 (no limit) or more, not {self.limit}")
        if not self.ngrams or min(self.ngrams) < 0 or abs(sum(self.ngrams) - 1) > 1e-6:
            raise ValueError(f"ngrams must be probabilities with a sum of 1, not {list(self.ngrams)}")
        if not 0 <= self.unit_from < 1 or (self.unit_from and self.unit == "pieces"):
            raise ValueError(
                "unit_from must be a fraction below 1, and 0 unless words or ngrams are masked; it is "
                f'{self.unit_from} with unit = "{self.unit}"'
            )
        if self.unit != "ngrams" and self.ngrams != NGRAMS:
            raise ValueError(f'ngrams have no effect with unit = "{self.unit}": remove them, or set unit = "ngrams"')

    def at(self, done: float) -> MaskedLanguage:
        """Return the objective with the rate and the unit that hold after the fraction `done` of the run's steps.

        >>> MaskedLanguage(rate=0.3, later_rates=(0.15,), later_from=(0.6,)).at(0.7).rate
        0.15
        """
        if self.unit_from:
            later = replace(self, unit_from=0.0)
            return (replace(later, unit="pieces", ngrams=NGRAMS) if done < self.unit_from else later).at(done)
        if not self.later_from:
            return self
        rates = (self.rate, *self.later_rates)
        # bisect_right: at exactly `later_from` the later rate already holds.
        rate = rates[bisect.bisect_right(self.later_from, done)]
        return replace(self, rate=rate, later_rates=(), later_from=())

    def course(self) -> str:
        """Describe rates and units and when they change: "mlm.rate: 0.3, 0.15 after 0.6 of the steps"."""
        if self.unit_from:
            units = f"{self.name}.unit: pieces, {self.unit} after {self.unit_from:.3g} of the steps"
            return "; ".join(filter(None, (units, replace(self, unit_from=0.0).course())))
        later = zip(self.later_rates, self.later_from, strict=True)
        parts = [f"{self.rate:.3g}", *(f"{rate:.3g} after {begin:.3g} of the steps" for rate, begin in later)]
        return f"{self.name}.rate: {', '.join(parts)}; on held-out text {self.rate:.3g}" if self.later_rates else ""

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return examples with the chosen positions corrupted; the labels are the original pieces."""
        # Two streams of noise: a change of mask or random then leaves the chosen positions as they were.
        index, counts = self._choose(examples, noise.stream(0))
        labels = examples.ids[index]
        input_ids = corrupt_pieces(
            labels, counts, mask=self.mask, random=self.random, tokenizer=packer.tokenizer, noise=noise.stream(1)
        )
        ids = examples.ids.copy()
        ids[index] = input_ids
        return examples.with_target(
            ids=ids, name=self.pieces, targets=Targets(labels=labels, counts=counts, index=index)
        )

    def _choose(self, examples: Examples, noise: Noise) -> tuple[Places, Places]:
        """Return the positions to predict (M,) in the flat batch, and their number for each example (B,)."""
        counts = self._quotas(examples)
        if self.unit == "pieces":
            return choose(examples, counts, noise)
        # Whole words are n-grams of one word.
        probabilities = self.ngrams if self.unit == "ngrams" else (1.0,)
        return choose_words(examples, counts, noise, run_probabilities=probabilities)

    def _quotas(self, examples: Examples) -> Places:
        """Return the number of positions to choose in each example (B,)."""
        return quotas(examples.lengths, rate=self.rate, limit=self.limit)

    def objections(self, architecture: Sizes) -> Iterator[str]:
        if architecture.separate_directions:
            yield (
                f"{self.name} predicts a masked piece from both sides, which the states of model.family = "
                f'{architecture.family} keep apart. Set objectives = ["both_ways"].'
            )
        if architecture.writes_only:
            yield (
                f"{self.name} predicts pieces from an encoder, but model.family = {architecture.family} predicts them "
                f'in its decoder alone. Set objectives = ["{architecture.language_objective}"].'
            )
        if self.unigram_start and not (architecture.piece_transform or architecture.piece_biases):
            yield f"{self.name}.unigram_start sets a bias: model.piece_transform = false has none. Remove one."

    def head(self, backbone: Backbone) -> Head:
        """Return the masked-language head. Its output embeddings are those of the backbone (tied)."""
        from osbert.models.heads.predictions import MaskedLanguageHead

        return MaskedLanguageHead(backbone, target=self.name)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        from osbert.models.heads.predictions import begin_at_unigrams

        if self.unigram_start:
            begin_at_unigrams(head, counts)
