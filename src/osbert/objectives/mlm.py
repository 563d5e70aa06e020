"""Masked language modelling: predict the pieces at chosen positions from both sides (section 3.1, task 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from osbert.data.corrupt import choose, mixed, quota
from osbert.data.example import Example, Target
from osbert.data.pack import Packer
from osbert.objectives import Objective

if TYPE_CHECKING:
    from osbert.models.heads import Head
    from osbert.models.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class MaskedLanguage(Objective):
    """Chooses positions, never specials; of those a share becomes [MASK], a share a random piece, the rest stays."""

    rate: float = 0.15
    """Share of a sequence's tokens that is predicted."""
    mask: float = 0.8
    """Share of the chosen positions that shows [MASK]."""
    random: float = 0.1
    """Share of the chosen positions that shows a random piece; what mask and random leave shows the piece itself."""
    limit: int = 0
    """Most predictions in a sequence, 0 for no limit (google-research/bert: 20 at length 128, 80 at 512)."""
    unigram_start: bool = False
    """Start the vocabulary bias at the log unigram probabilities of the corpus instead of 0."""

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate is a share between 0 and 1, not {self.rate}")
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1 + 1e-9:
            raise ValueError(f"mask and random are shares whose sum is at most 1, not {self.mask} and {self.random}")
        if self.limit < 0:
            raise ValueError(f"limit must be 0 (none) or more, not {self.limit}")

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the example with chosen positions corrupted; the target's labels are the pieces that stood there."""
        index = choose(example.special, quota(len(example), rate=self.rate, limit=self.limit), rng)
        labels = example.ids[index]
        ids = example.ids.copy()
        ids[index] = mixed(labels, mask=self.mask, random=self.random, tokenizer=packer.tokenizer, rng=rng)
        return example.changed(ids=ids, name=self.name, target=Target(labels=labels, index=index))

    def head(self, backbone: Transformer) -> Head:
        """Return the masked-language head, its output embeddings tied to the backbone's."""
        from osbert.models.predictions import MaskedLanguageHead

        return MaskedLanguageHead(backbone, target=self.name)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Start the bias at the log unigram probabilities, with one added to each count, if so set."""
        import torch

        if self.unigram_start:
            probabilities = (counts + 1.0) / (counts + 1.0).sum()
            head.get_parameter("bias").data.copy_(torch.from_numpy(np.log(probabilities)))
