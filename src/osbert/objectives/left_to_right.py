"""Left-to-right language modelling: predict each piece from those before it ("LTR", section 5.1; GPT, Radford 2018)."""

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
class LeftToRight(Objective):
    """Predicts every piece at the token before it, the first one at [CLS]; the text is not corrupted.

    If the tokenizer puts no special piece before a text, its first piece is not predicted. [SEP] is read but not
    predicted, so the loss covers the same pieces as that of a masked language model. The model must be causal
    (model.direction = "left_to_right") and stays so in fine-tuning.
    """

    before_noise: ClassVar[bool] = True
    lookahead: ClassVar[int] = 1
    answers: ClassVar[Answers] = "pieces"

    unigram_start: bool = False
    """Start the vocabulary bias at the log unigram probabilities of the corpus instead of 0."""

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return the examples unchanged, with the next piece as the label of every token that a piece follows."""
        followed = ~examples.special[1:]
        followed[examples.starts[1:] - 1] = False  # the next token is another example's
        index = np.flatnonzero(followed)
        counts = np.diff(np.searchsorted(index, examples.starts), append=len(index))
        targets = Targets(labels=examples.ids[index + 1], counts=counts, index=index)
        return examples.with_target(ids=examples.ids, name=self.name, targets=targets)

    def every_next(self, examples: Examples) -> Examples:
        """Return the examples with the next piece as the label of every token but the last, specials included.

        For the auxiliary loss of fine-tuning (GPT, Radford et al. 2018, equation 5). The weights of a sequence's
        labels sum to 1: the loss is the mean over sequences of the mean over their tokens.
        """
        last = examples.starts + examples.lengths - 1
        index = np.delete(np.arange(len(examples.ids)), last)
        counts = examples.lengths - 1
        weights = np.repeat(1 / np.maximum(counts, 1), counts).astype(np.float32)
        targets = Targets(labels=examples.ids[index + 1], counts=counts, index=index, weights=weights)
        return examples.with_target(ids=examples.ids, name=self.name, targets=targets)

    def objections(self, architecture: Sizes) -> Iterator[str]:
        if architecture.direction != "left_to_right":
            yield (
                f'{self.name} predicts the next piece, but with model.direction = "{architecture.direction}" every '
                'token sees it. Set model.direction = "left_to_right".'
            )
        elif not architecture.causal:
            yield (
                f"{self.name} predicts the next piece, but recurrent layers read backwards. Set model.recurrent = 0; "
                "they can be added in fine-tuning (osbert finetune ... --recurrent 1)."
            )
        if self.unigram_start and not (architecture.piece_transform or architecture.piece_biases):
            yield f"{self.name}.unigram_start sets a bias: model.piece_transform = false has none. Remove one."

    def head(self, backbone: Backbone) -> Head:
        """Return the language-model head. Its output embeddings are those of the backbone (tied).

        Raises ValueError if the backbone would see the pieces that it has to predict.
        """
        from osbert.models.heads.predictions import MaskedLanguageHead

        self.require_fit(backbone.architecture)
        return MaskedLanguageHead(backbone, target=self.name)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        from osbert.models.heads.predictions import begin_at_unigrams

        if self.unigram_start:
            begin_at_unigrams(head, counts)
