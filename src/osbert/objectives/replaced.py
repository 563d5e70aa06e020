"""Replaced-token detection: tell a small generator's pieces from those of the text ("ELECTRA", Clark et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.data.ragged import rows
from osbert.objectives.contract import Answers
from osbert.objectives.mlm import MaskedLanguage

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens(MaskedLanguage):
    """A generator, a narrow masked language model, fills masks; the encoder says of each token if it is the text's.

    Both train at once (section 2): the loss is the generator's and `weight` times the encoder's, each the mean over its
    own tokens. The two share the tables of pieces, positions and segments and nothing else.
    """

    title: ClassVar[str] = "replaced tokens"
    answers: ClassVar[Answers] = "rare"
    companions: ClassVar[Mapping[str, Answers]] = {"generator": "pieces"}
    alone: ClassVar[bool] = True

    weight: float = 50.0
    """Factor of the encoder's mean loss in the sum with the generator's that a step minimises."""
    mask: float = 0.85
    """Share of the chosen positions that shows [MASK] to the generator; all of them get a piece of it."""
    random: float = 0.0
    """Share of the chosen positions that shows the generator a random piece; what mask and random leave shows the piece
    itself."""
    generator: float = 0.25
    """Width and heads of the generator as a share of those of the encoder; it has as many layers."""

    @property
    def pieces(self) -> str:
        """Return the name of the target that holds the true pieces: the generator's."""
        return "generator"

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        super().__post_init__()
        if not 0 < self.generator <= 1:
            raise ValueError(f"generator is a share above 0 and at most 1, not {self.generator}")

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return examples with chosen positions masked for the generator; every token has a number from 0 to below 1.

        By its number the piece is drawn where the token is chosen. So what is drawn depends neither on how many
        sequences are in a pass nor on how many processes there are.
        """
        masked = super().corrupt_all(examples, packer, noise)
        counts = examples.lengths
        numbers = Targets(
            labels=noise.stream(2).uniform(*rows(counts)).astype(np.float32),
            counts=counts,
            index=np.arange(len(examples.ids)),
        )
        return replace(masked, targets={**masked.targets, self.name: numbers})

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield why no generator stands beside an encoder."""
        generator = architecture.narrowed(self.generator)
        if generator is None:
            yield (
                f"{self.name} needs a generator that shares the encoder's tables, and model.family = "
                f"{architecture.family} has none. Leave {self.name} out of objectives, or the family."
            )
            return
        for problem in generator.problems():
            yield f"{self.name}.generator = {self.generator} of this model.width makes no generator: its {problem}."

    def head(self, backbone: Backbone) -> Head:
        """Return the head that scores every token, with its generator. Raises ValueError where there can be none."""
        from osbert.models.heads.discriminator import DiscriminatorHead, make_generator

        if objections := list(self.objections(backbone.architecture)):
            raise ValueError(" ".join(objections))
        generator = make_generator(backbone, share=self.generator, name=self.pieces)
        return DiscriminatorHead(backbone, target=self.name, generator=generator)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Start the generator's bias at the log unigram probabilities, if so set."""
        for generator in head.companions.values():
            super().begin(generator.heads[self.pieces], counts)
