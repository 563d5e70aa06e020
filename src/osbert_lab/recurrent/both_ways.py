"""Bidirectional language modelling: each word from those before it and from those after it (ELMo, Peters 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.contract import Answers, Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


@dataclass(frozen=True, kw_only=True)
class BothWays(Objective):
    """Predicts every word twice: at the token before it and at the token after it (section 3.1, equation 1).

    The loss is the mean over both directions. A word needs a token on both sides: the first word of a text whose
    tokenizer puts no special piece before it is not predicted. Special pieces are not predicted either. The encoder
    must keep the directions separate, as the family bilm does.
    """

    before_noise: ClassVar[bool] = True
    answers: ClassVar[Answers] = "pieces"

    unigram_start: bool = False
    """Start the vocabulary bias at the log unigram probabilities of the corpus instead of 0."""

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return the examples unchanged; each word is the label of the token before it and of the token after it."""
        inner = ~examples.special
        # The first and the last token of an example lack a neighbour on one side.
        inner[examples.starts] = inner[examples.starts + examples.lengths - 1] = False
        words = np.flatnonzero(inner)
        counts = 2 * np.diff(np.searchsorted(words, examples.starts), append=len(words))
        # Interleaved: before and after the first word, before and after the second one, ...
        index = (words[:, None] + np.array([-1, 1])).ravel()
        targets = Targets(labels=examples.ids[words].repeat(2), counts=counts, index=index)
        return examples.with_target(ids=examples.ids, name=self.name, targets=targets)

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message if hidden states would depend on the word that they have to predict."""
        if not architecture.separate_directions:
            yield (
                f"{self.name} predicts a word from each side, but states of model.family = {architecture.family} see "
                'both. Set family = "bilm".'
            )

    def head(self, backbone: Backbone) -> Head:
        """Return the language-model head. Raises ValueError if hidden states depend on the predicted words."""
        from osbert_lab.recurrent.directions_head import DirectionsHead

        self.require_fit(backbone.architecture)
        return DirectionsHead(backbone, target=self.name)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Initialise the bias with the log unigram probabilities if `unigram_start` is set."""
        from osbert.models.heads.predictions import begin_at_unigrams

        if self.unigram_start:
            begin_at_unigrams(head, counts)
