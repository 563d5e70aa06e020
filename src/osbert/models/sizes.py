"""The settings common to all families of backbones. torch is not imported until a backbone is built."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

from osbert import components

Direction = Literal["both", "left_to_right"]
Precision = Literal["fp32", "bf16"]
"""Precision of the products of a generation step."""
DEFAULT_FAMILY = "transformer"
"""The family of settings without a family name."""


class Sizes:
    """The settings common to all families, the only ones that heads, tasks and packers read.

    A family's settings are a frozen dataclass derived from this class, with these fields and its own. The family's file
    in models/families/ has the `Backbone` that is built from them.
    """

    family: ClassVar[str]
    """The name of the family's file."""
    has_decoder: ClassVar[bool] = False
    """Whether the model generates a text from another, the source, which its batches then contain."""
    layers: int
    """Blocks above the embeddings. `Backbone.layers` yields layers + 1 states."""
    width: int
    """Size of the hidden state of a token, D."""
    vocabulary: int
    """Pieces in the vocabulary, V; 0 for the tokenizer's."""
    length: int
    """Most tokens in a sequence."""
    segments: int
    """Kinds of segment: 2 or more if the model reads pairs of texts."""
    dropout: float
    """Dropout rate in training."""
    deviation: float
    """Standard deviation of the initial weights."""
    direction: Direction = "both"
    """Tokens that a token attends to: the whole sequence, or itself and those before it."""
    activation: str = "gelu"
    """The activation of a head's transform, by its name in models/transformer/block.py."""
    piece_activation: str = ""
    """The activation in heads that predict pieces, if another than `activation`."""
    epsilon: float = 1e-12
    """Added to the variance in the normalisation of a head's transform."""
    piece_transform: bool = True
    """Whether heads that predict pieces transform the states and have a bias for each piece."""
    piece_biases: bool = False
    """Whether they have a bias for each piece even without a transform."""
    window: int = 0
    """Positions that a token sees on either side in a local block; 0 if all blocks are global."""
    head_transform: bool = False
    """Whether heads for tokens and spans transform the states by a dense layer, an activation and a norm."""
    head_biases: bool = True
    """Whether the transforms of heads have biases."""
    root_norm: bool = False
    """Whether the norms in the transforms of heads are RMSNorm."""
    tied: bool = True
    """Whether heads that predict pieces share the piece embeddings, or have a table of their own."""

    scaled_pieces: bool = False
    """Whether heads that predict pieces divide the states by sqrt(width) (T5)."""
    separate_directions: bool = False
    """Whether the first half of a state depends on no later token, and the second half on no earlier one (ELMo)."""
    writes_only: bool = False
    """Whether heads that predict pieces read the states of a decoder alone, whose width is another (CoVe)."""
    reading: str = "both"
    """Which side of an encoder-decoder reads a text if none is generated: the encoder alone, or both."""
    recurrent: int = 0
    """Recurrent layers on top of the encoder."""
    adapters: int = 0
    """Width of the adapters in the blocks; 0 for none."""
    tasks: int = 0
    """Rows of the task embedding, one for each objective of a curriculum; 0 for none."""

    @property
    def writes_whole_texts(self) -> bool:
        """Return whether a decoder's targets are whole texts with their special pieces (BART), not parts (T5)."""
        return False

    @property
    def summary_is_last(self) -> bool:
        """Return whether the summary, if it is one token's state, is that of the last token."""
        return self.direction == "left_to_right"

    @property
    def causal(self) -> bool:
        """Return whether no state depends on a later token."""
        return self.direction == "left_to_right"

    @property
    def language_objective(self) -> str | None:
        """The language-model objective of models that cannot predict masked pieces, else None."""
        if self.separate_directions:
            return "both_ways"
        return "left_to_right" if self.causal else None

    def is_local(self, layer: int) -> bool:
        """Return whether block `layer`, counted from 0, is local: tokens see `window` positions on either side."""
        return False

    @property
    def any_length(self) -> bool:
        """Return whether the weights are the same for every `length`."""
        return False

    @property
    def dropouts(self) -> tuple[float, ...]:
        """All dropout rates of the backbone."""
        return (self.dropout,)

    def differences(self, other: Sizes) -> Iterator[tuple[str, Any, Any]]:
        """Yield each setting whose value differs in `other`, of the same family: name, value here, value in `other`."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, other_value = getattr(self, field.name), getattr(other, field.name)
            if value != other_value:
                yield field.name, value, other_value

    def replace(self, **fields: Any) -> Self:
        """Return these settings with other values of some fields."""
        return dataclasses.replace(self, **fields)  # type: ignore[type-var]

    def resize(self, layers: int, width: int) -> Self:
        """Return these settings with other `layers` and `width`, and dependent settings adjusted.

        A size that is not a setting of the family, but a constant, does not change.
        """
        fields = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return self.replace(**{name: value for name, value in (("layers", layers), ("width", width)) if name in fields})

    def activations(self, length: int) -> float:
        """Return about how many numbers a block saves per token for the backward pass; `length`: tokens a sequence."""
        return 17 * self.width

    def problems(self) -> tuple[str, ...]:
        """Describe every invalid setting, with its value and the requirement."""
        return ()

    def narrow(self, factor: float) -> Self | None:
        """Return the settings of an encoder of `factor` times this width that can share this one's tables.

        None if the family has no such encoders (`Backbone.share_tables`).
        """
        return None

    def build(self) -> Any:
        """Return a Backbone with new weights, from torch's global generator.

        Raises ValueError that lists all problems.
        """
        model = self.empty()
        from osbert.models.initialisation import with_memory  # which imports torch: it takes seconds

        with_memory(model).initialise()
        return model

    def empty(self) -> Any:
        """Return a Backbone whose weights have no memory yet (torch's "meta" device), to be filled by a reader.

        Raises ValueError that lists all problems.
        """
        problems = []
        for name, kind in typing.get_type_hints(type(self)).items():  # recipes and options are checked before
            known = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
            if known and getattr(self, name) not in known:
                problems.append(f"{name} is {getattr(self, name)!r}, but must be one of {', '.join(map(str, known))}")
        if problems := [*problems, *self.problems()]:
            raise ValueError("this architecture cannot be built: " + "; ".join(problems))
        from osbert.models.initialisation import without_memory  # which imports torch: it takes seconds

        family = components.contract("models").find_family(self.family)
        with without_memory():
            return family(self)
