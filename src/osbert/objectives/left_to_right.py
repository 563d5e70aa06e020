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
    """Every piece is predicted at the token before it, the first one at [CLS]; no text is corrupted.

    Where the tokenizer's form has nothing before a text, its first piece is not predicted.

    [SEP] is seen but not asked for, so the loss is of the same pieces as a masked language model's. The encoder must
    look left only (model.direction), which it then does in fine-tuning too.
    """

    before_noise: ClassVar[bool] = True
    lookahead: ClassVar[int] = 1
    answers: ClassVar[Answers] = "pieces"

    unigram_start: bool = False
    """Start the vocabulary bias at the log unigram probabilities of the corpus instead of 0."""

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return the examples as they are, with the next piece as the label of every token that a piece follows."""
        followed = ~examples.special[1:]
        followed[examples.starts[1:] - 1] = False  # the next token is another example's
        index = np.flatnonzero(followed)
        counts = np.diff(np.searchsorted(index, examples.starts), append=len(index))
        targets = Targets(labels=examples.ids[index + 1], counts=counts, index=index)
        return examples.changed(ids=examples.ids, name=self.name, targets=targets)

    def every_next(self, examples: Examples) -> Examples:
        """Return the examples with the next piece as the label of every token but the last, specials included.

        The auxiliary loss of fine-tuning (GPT, Radford et al. 2018, equation 5): the labels of a sequence weigh 1
        together, so that its mean is that over the sequences of the means over their tokens.
        """
        last = examples.starts + examples.lengths - 1
        index = np.delete(np.arange(len(examples.ids)), last)
        counts = examples.lengths - 1
        weights = np.repeat(1 / np.maximum(counts, 1), counts).astype(np.float32)
        targets = Targets(labels=examples.ids[index + 1], counts=counts, index=index, weights=weights)
        return examples.changed(ids=examples.ids, name=self.name, targets=targets)

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield what would let a token see the piece that it is to predict."""
        if architecture.direction != "left_to_right":
            yield (
                f'{self.name} predicts the next piece, which model.direction = "{architecture.direction}" lets every '
                'token see. Set model.direction = "left_to_right".'
            )
        elif not architecture.causal:
            yield (
                f"{self.name} predicts the next piece, which recurrent layers read backwards. Set model.recurrent = 0; "
                "they are added in fine-tuning (osbert finetune ... --recurrent 1)."
            )
        if self.unigram_start and not architecture.piece_transform:
            yield f"{self.name}.unigram_start sets biases, which model.piece_transform = false has none of."

    def head(self, backbone: Backbone) -> Head:
        """Return the language-model head, its output embeddings tied to the backbone's.

        Raises ValueError when the backbone sees what is to be predicted.
        """
        from osbert.models.heads.predictions import MaskedLanguageHead

        if objections := list(self.objections(backbone.architecture)):
            raise ValueError(" ".join(objections))
        return MaskedLanguageHead(backbone, target=self.name)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Start the bias at the log unigram probabilities, if so set."""
        from osbert.models.heads.predictions import begin_at_unigrams

        if self.unigram_start:
            begin_at_unigrams(head, counts)
