"""The same text twice: two readings under dropout find each other (unsupervised SimCSE, Gao et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.pooling import Pooling
from osbert.objectives.contract import Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


@dataclass(frozen=True, kw_only=True)
class SameText(Objective):
    """Every sequence is read twice, each time with other dropout; the vectors of the two readings must be alike.

    Section 3 of the paper, equation 4: the other sequences of a step are the negatives, so a step is one pass. Held-out
    text is read without dropout: its loss says how near the vectors of other texts come.
    """

    title: ClassVar[str] = "the same text twice"
    whole: ClassVar[bool] = True

    pooling: Pooling = "mean"
    """How the states of a text become its vector; `osbert adapt` takes that of the sentence encoder."""
    temperature: float = 0.05
    """What cosines are divided by before the softmax."""

    def __post_init__(self) -> None:
        """Refuse a temperature that is none."""
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature}")

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return the examples as they are, each with one label; the head reads them twice."""
        ones = np.ones(len(examples), np.int64)
        return examples.changed(ids=examples.ids, name=self.name, targets=Targets(labels=ones, counts=ones))

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield that nothing would tell the two readings apart."""
        if not any(architecture.dropouts):
            yield f"{self.name} tells two readings of a text apart by dropout. Set model.dropout = 0.1."

    def head(self, backbone: Backbone) -> Head:
        """Return the head, which has no weights of its own."""
        from osbert.models.heads.contrastive import SameTextHead

        return SameTextHead(backbone, target=self.name, pooling=self.pooling, temperature=self.temperature)
