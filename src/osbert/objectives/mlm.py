"""Masked language modelling: predict the pieces at chosen positions from both sides (section 3.1, task 1)."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.corrupt import choose, choose_words, mixed, quotas
from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.data.ragged import Places
from osbert.objectives.contract import Answers, Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


NGRAMS = (0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True, kw_only=True)
class MaskedLanguage(Objective):
    """Chooses positions, never specials; of those a share becomes [MASK], a share a random piece, the rest stays."""

    answers: ClassVar[Answers] = "pieces"

    rate: float = 0.15
    """Share of a sequence's tokens that is predicted."""
    later_rates: tuple[float, ...] = ()
    """Rates that take the place of `rate` in the course of the run, one after the other (mmBERT: 0.15 and 0.05 after
    0.3). Held-out text is always masked at `rate`, so that its losses can be compared."""
    later_from: tuple[float, ...] = ()
    """The share of the run's steps after which each of `later_rates` begins, ascending."""
    mask: float = 0.8
    """Share of the chosen positions that shows [MASK]."""
    random: float = 0.1
    """Share of the chosen positions that shows a random piece; what mask and random leave shows the piece itself."""
    limit: int = 0
    """Most predictions in a sequence, 0 for no limit (google-research/bert: 20 at length 128, 80 at 512)."""
    unit: Literal["pieces", "words", "ngrams"] = "pieces"
    """What is chosen: single pieces, whole words (whole-word masking), or runs of words (n-gram masking)."""
    ngrams: tuple[float, ...] = NGRAMS
    """With unit = "ngrams": how often a run is of 1 word, of 2 words, and so on; the shares sum to 1."""
    unigram_start: bool = False
    """Start the vocabulary bias at the log unigram probabilities of the corpus instead of 0."""

    @property
    def pieces(self) -> str:
        """Return the name of the target that holds the true pieces."""
        return self.name

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate is a share between 0 and 1, not {self.rate}")
        if not all(0 < rate <= 1 for rate in self.later_rates):
            raise ValueError(f"later_rates are shares between 0 and 1, not {list(self.later_rates)}")
        if len(self.later_rates) != len(self.later_from):
            raise ValueError(
                f"later_from says after which share of the steps each of later_rates begins: {len(self.later_rates)} "
                f"rates need as many, not {len(self.later_from)}"
            )
        ascending = [0.0, *self.later_from, 1.0]
        if not all(before < after for before, after in itertools.pairwise(ascending)):
            raise ValueError(f"later_from are ascending shares between 0 and 1, not {list(self.later_from)}")
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1 + 1e-9:
            raise ValueError(f"mask and random are shares whose sum is at most 1, not {self.mask} and {self.random}")
        if self.limit < 0:
            raise ValueError(f"limit must be 0 (none) or more, not {self.limit}")
        if not self.ngrams or min(self.ngrams) < 0 or abs(sum(self.ngrams) - 1) > 1e-6:
            raise ValueError(f"ngrams are shares whose sum is 1, not {list(self.ngrams)}")
        if self.unit != "ngrams" and self.ngrams != NGRAMS:
            raise ValueError(f'ngrams do nothing with unit = "{self.unit}": leave them out, or set unit = "ngrams"')

    def at(self, done: float) -> MaskedLanguage:
        """Return the objective with the rate that holds after a share `done` of the run's steps."""
        if not self.later_from:
            return self
        rates = (self.rate, *self.later_rates)
        rate = rates[bisect.bisect_right(self.later_from, done)]
        return replace(self, rate=rate, later_rates=(), later_from=())

    def course(self) -> str:
        """Return the rates and when they change: "mlm.rate: 0.3, 0.15 after 0.6 of the steps"."""
        later = zip(self.later_rates, self.later_from, strict=True)
        parts = [f"{self.rate:.3g}", *(f"{rate:.3g} after {begin:.3g} of the steps" for rate, begin in later)]
        return f"{self.name}.rate: {', '.join(parts)}; on held-out text {self.rate:.3g}" if self.later_rates else ""

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return examples with chosen positions corrupted; the targets' labels are the pieces that stood there."""
        index, counts = self._choose(examples, noise.stream(0))
        labels = examples.ids[index]
        shown = mixed(
            labels, counts, mask=self.mask, random=self.random, tokenizer=packer.tokenizer, noise=noise.stream(1)
        )
        ids = examples.ids.copy()
        ids[index] = shown
        return examples.changed(ids=ids, name=self.pieces, targets=Targets(labels=labels, counts=counts, index=index))

    def _choose(self, examples: Examples, noise: Noise) -> tuple[Places, Places]:
        """Return the positions to predict (M,) and how many each example has; each then draws what it shows."""
        counts = self._quotas(examples)
        if self.unit == "pieces":
            return choose(examples, counts, noise)
        shares = self.ngrams if self.unit == "ngrams" else (1.0,)
        return choose_words(examples, counts, noise, shares=shares)

    def _quotas(self, examples: Examples) -> Places:
        """Return how many positions of each example to choose (B,)."""
        return quotas(examples.lengths, rate=self.rate, limit=self.limit)

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield why pieces cannot be predicted, and why the first bias cannot be set, where the head has none."""
        if architecture.separate_directions:
            yield (
                f"{self.name} predicts a masked piece from both sides, which the states of model.family = "
                f'{architecture.family} keep apart. Set objectives = ["both_ways"].'
            )
        if self.unigram_start and not architecture.piece_transform:
            yield f"{self.name}.unigram_start sets biases, which model.piece_transform = false has none of."

    def head(self, backbone: Backbone) -> Head:
        """Return the masked-language head, its output embeddings tied to the backbone's."""
        from osbert.models.heads.predictions import MaskedLanguageHead

        return MaskedLanguageHead(backbone, target=self.name)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Start the bias at the log unigram probabilities, if so set."""
        from osbert.models.heads.predictions import begin_at_unigrams

        if self.unigram_start:
            begin_at_unigrams(head, counts)
