"""Replaced-token detection: which tokens were replaced by a small generator ("ELECTRA", Clark et al. 2020)?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import rows
from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.contract import Answers
from osbert.objectives.mlm import MaskedLanguage

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens(MaskedLanguage):
    """A generator, a narrow masked language model, fills masks; the encoder classifies each token as original or not.

    Both train together (section 2): the loss is that of the generator plus `weight` times that of the encoder, each the
    mean over its own tokens. Both have the same embeddings of pieces, positions and segments, and nothing else in
    common.
    """

    title: ClassVar[str] = "replaced tokens"
    answers: ClassVar[Answers] = "rare"
    companions: ClassVar[Mapping[str, Answers]] = {"generator": "pieces"}
    alone: ClassVar[bool] = True

    weight: float = 50.0
    """Factor of the encoder's mean loss in the sum with that of the generator (lambda in section 2)."""
    mask: float = 0.85
    """Fraction of the chosen positions that shows [MASK] to the generator. It fills all chosen positions."""
    random: float = 0.0
    """Fraction of the chosen positions that shows the generator a random piece. The others show the piece itself."""
    generator: float = 0.25
    """Width and heads of the generator as a fraction of those of the encoder; it has as many layers."""

    pieces: ClassVar[str] = "generator"
    """The target with the true pieces is the generator's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.generator <= 1:
            raise ValueError(f"generator must be a fraction above 0 and at most 1, not {self.generator}")

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return examples masked for the generator, with a uniform random number in [0, 1) for every token.

        The head samples the generator's piece by that number. So a sample depends neither on the number of sequences
        in a pass nor on the number of processes.
        """
        # The targets of this mask are the generator's (`pieces`).
        masked = super().corrupt_all(examples, packer, noise)
        counts = examples.lengths
        numbers = Targets(
            # MaskedLanguage uses streams 0 and 1; a third one leaves its masks as they are without replacement.
            labels=noise.stream(2).uniform(*rows(counts)).astype(np.float32),
            counts=counts,
            # Every token is classified, not only the masked ones (section 2).
            index=np.arange(len(examples.ids)),
        )
        return replace(masked, targets={**masked.targets, self.name: numbers})

    def objections(self, architecture: Sizes) -> Iterator[str]:
        generator = architecture.narrow(self.generator)
        if generator is None:
            yield (
                f"{self.name} needs a generator that shares the encoder's tables, and model.family = "
                f"{architecture.family} has none. Leave {self.name} out of objectives, or the family."
            )
            return
        for problem in generator.problems():
            yield f"{self.name}.generator = {self.generator} of this model.width makes no generator: its {problem}."

    def head(self, backbone: Backbone) -> Head:
        """Return the head that scores every token, with its generator. Raises ValueError if there can be none."""
        from osbert.models.heads.discriminator import DiscriminatorHead, make_generator

        self.require_fit(backbone.architecture)
        generator = make_generator(backbone, factor=self.generator, name=self.pieces)
        return DiscriminatorHead(backbone, target=self.name, generator=generator)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        for generator in head.companions.values():
            super().begin(generator.heads[self.pieces], counts)
