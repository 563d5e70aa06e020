"""The contract of objectives of encoder-decoders: what is read and what is written, and the head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from osbert.data.example import Example
from osbert.objectives.contract import Answers, Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


@dataclass(frozen=True, kw_only=True)
class WritingObjective(Objective):
    """An objective of encoder-decoders: examples have a source, and the decoder learns to write the target from it."""

    answers: ClassVar[Answers] = "pieces"
    alone: ClassVar[bool] = True

    @property
    def asked(self) -> str:
        """Return the setting that decides how much is written, with its value; "" where none does."""
        return ""

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield how much is to be written for what is read."""
        written = sum(len(example.targets[self.name].labels) for example in examples)
        read = sum(len(example.source or ()) for example in examples)
        yield "tokens to write for each that is read", f"{written / max(read, 1):.1%}", self.asked

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message if the model has no decoder."""
        if not architecture.has_decoder:
            family = architecture.family
            yield (
                f'{self.name} needs a decoder, which model.family = {family} has not. Set family = "pair", a '
                'Transformer, or "translator", LSTM layers.'
            )

    def head(self, backbone: Backbone) -> Head:
        """Return the language-model head on the decoder. Raises ValueError if the model has no decoder."""
        from osbert.models.heads.predictions import MaskedLanguageHead

        self.require_fit(backbone.architecture)
        return MaskedLanguageHead(backbone, target=self.name)
