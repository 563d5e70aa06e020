"""Unsupervised SimCSE: a text, read twice under dropout, is its own positive pair (Gao et al. 2021, section 3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.forms import Pooling
from osbert.objectives.contract import Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


@dataclass(frozen=True, kw_only=True)
class SameText(Objective):
    """Reads every sequence twice with different dropout masks; the two vectors form a positive pair.

    The other sequences of the step are the negatives (equation 4), so a step is one pass. Held-out text is read without
    dropout: its loss shows how close the vectors of different texts are.
    """

    title: ClassVar[str] = "the same text twice"
    whole: ClassVar[bool] = True

    pooling: Pooling = "mean"
    """How the states of a text become its vector. `osbert adapt` uses the pooling of the sentence encoder."""
    temperature: float = 0.05
    """The cosines are divided by it before the softmax."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature}")

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return the examples unchanged, each with one label; the head reads them twice."""
        ones = np.ones(len(examples), np.int64)
        return examples.with_target(ids=examples.ids, name=self.name, targets=Targets(labels=ones, counts=ones))

    def objections(self, architecture: Sizes) -> Iterator[str]:
        if not any(architecture.dropouts):
            yield f"{self.name} needs dropout: without it both readings are the same. Set model.dropout = 0.1."

    def head(self, backbone: Backbone) -> Head:
        from osbert.models.heads.contrastive import SameTextHead

        return SameTextHead(backbone, target=self.name, pooling=self.pooling, temperature=self.temperature)
