"""What the settings of every family of backbones say. No torch is loaded until a backbone is built of them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, Self

from osbert import components

Direction = Literal["both", "left_to_right"]
DEFAULT_FAMILY = "transformer"
"""The family of settings that name none."""


class Sizes:
    """What the settings of every family say; heads, tasks and packers read nothing else of them.

    A family's settings are a frozen dataclass on this class, with these fields and its own. The family's file in
    models/families/ has the `Backbone` that is built from them.
    """

    family: ClassVar[str]
    """The name of the family's file."""
    layers: int
    """Blocks above the embeddings: `Backbone.layers` yields one state more."""
    width: int
    """Numbers in the state of a token, D."""
    vocabulary: int
    """Pieces in the vocabulary, V; 0 for the tokenizer's."""
    length: int
    """Most tokens in a sequence."""
    segments: int
    """Kinds of segment: 2 or more where the model reads pairs of texts."""
    dropout: float
    """Dropout rate in training."""
    deviation: float
    """Standard deviation of the normal that new weights are drawn from."""
    direction: Direction = "both"
    """What a token sees: the whole sequence, or only itself and what is before it."""
    activation: str = "gelu"
    """The activation of a head's transform, by its name in models/transformer/block.py."""
    epsilon: float = 1e-12
    """Added to the variance in the normalisation of a head's transform."""
    piece_transform: bool = True
    """Whether heads that predict pieces transform the states and have a bias for each piece."""
    piece_biases: bool = False
    """Whether they have a bias for each piece without a transform, too."""
    window: int = 0
    """Positions that a token of a local block sees to either side; 0 where all blocks are global."""
    head_transform: bool = False
    """Whether heads for tokens and spans transform the states, too: a dense layer, an activation and a norm."""
    head_biases: bool = True
    """Whether the transforms of heads add biases."""
    root_norm: bool = False
    """Whether the norms of the transforms of heads divide by the root mean square alone."""
    tied: bool = True
    """Whether heads that predict pieces compare the states with the piece embeddings, or with a table of their own."""

    scaled_pieces: bool = False
    """Whether heads that predict pieces divide the states by the root of the width (T5)."""
    separate_directions: bool = False
    """Whether the first half of a state depends on no later token, and the second half on no earlier one (ELMo)."""

    @property
    def has_decoder(self) -> bool:
        """Return whether it writes one text from another, the source, which a batch then has beside its tokens."""
        return False

    @property
    def summary_is_last(self) -> bool:
        """Return whether the last token of a sequence stands for it, where one token does."""
        return self.direction == "left_to_right"

    @property
    def causal(self) -> bool:
        """Return whether no state depends on a later token."""
        return self.direction == "left_to_right"

    @property
    def language_objective(self) -> str | None:
        """Return the objective that predicts pieces where they cannot be masked ones, else None."""
        if self.separate_directions:
            return "both_ways"
        return "left_to_right" if self.causal else None

    def is_local(self, layer: int) -> bool:
        """Return whether a block, counted from 0, is local: its tokens see `window` positions to either side."""
        return False

    @property
    def any_length(self) -> bool:
        """Return whether the weights are the same for every `length`."""
        return False

    @property
    def dropouts(self) -> tuple[float, ...]:
        """Return every dropout rate of the backbone."""
        return (self.dropout,)

    def changed(self, **fields: Any) -> Self:
        """Return these settings with other values of some fields."""
        return dataclasses.replace(self, **fields)  # type: ignore[type-var]

    def resized(self, layers: int, width: int) -> Self:
        """Return these settings with other `layers` and `width`, and what depends on them changed to suit.

        What is no setting of the family, but the same in all its models, stays.
        """
        fields = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return self.changed(**{name: value for name, value in (("layers", layers), ("width", width)) if name in fields})

    def activations(self, length: int) -> float:
        """Return about how many numbers a block keeps of a token for the backward pass; `length`: tokens a sequence."""
        return 17 * self.width

    def problems(self) -> tuple[str, ...]:
        """Return every setting that no backbone can be built with, each with its value and what it must be."""
        return ()

    def narrowed(self, share: float) -> Self | None:
        """Return the settings of an encoder of this width times `share` that can use this one's tables.

        None where the family has no such encoders (`Backbone.share_tables`).
        """
        return None

    def build(self) -> Any:
        """Return a Backbone with fresh weights, drawn from torch's global generator.

        Raises ValueError listing every size that cannot be.
        """
        model = self.empty()
        model.to_empty(device="cpu")
        model.initialise()
        return model

    def empty(self) -> Any:
        """Return a Backbone whose weights have no memory yet (torch's "meta" device), for a reader to fill.

        Raises ValueError listing every size that cannot be.
        """
        if problems := self.problems():
            raise ValueError("this architecture cannot be built: " + "; ".join(problems))
        from osbert.models.meta import without_memory  # which imports torch: it takes seconds

        family = components.contract("models").find_family(self.family)
        with without_memory():
            return family(self)
