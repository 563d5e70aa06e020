"""How vectors are made: the settings that a file of vectors keeps, so that a question is embedded as its texts were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from osbert.data.long_texts import Long
from osbert.errors import UserError, nearest
from osbert.models import pooling
from osbert.models.adapting.layer_choice import Features, chosen_layers

Pooling = Literal[pooling.Pooling, "pooler", "tokens"]
"""What makes one vector of a sequence, BERT's own tanh layer on its summary, or no pooling."""
LEARNT = ("none", "mix")
"""Of the names of layers in layer_choice.py those that choose nothing, or weights that only fine-tuning finds."""
NAMED = tuple(name for name in get_args(Features) if name not in LEARNT)


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    """Options for vectors. None means the model's own."""

    pooling: Pooling | None = None
    """cls: the state of [CLS], or of the last [SEP] in a left-to-right model. mean, max: over all tokens, [CLS] and
    [SEP] included. weighted: a mean in which the token at place i weighs i (position-weighted). pooler: BERT's tanh
    layer on the last cls. tokens: no pooling. Left open: the model's own if it was trained for sentence vectors, else
    mean."""
    layers: str = "-1"
    """Which layers: 0 is the embedding layer, 1 the first block, -1 the last; "-1,-2,-3,-4" stacks four. Or last,
    second-to-last, embeddings, concat-last-four (side by side), sum-last-four, sum-all (with equal weights)."""
    normalize: bool | None = None
    """Vectors of length 1; left open: where the model was trained for that."""
    length: int = 0
    """Most tokens of a text that are read at once; 0 for what the model was trained for."""
    long: Long = "truncate"
    """How a text that does not fit is read: truncate, its beginning; head+tail, a quarter from its beginning and the
    rest from its end; window, all of it in overlapping windows, whose vectors are averaged; error, not at all."""
    overlap: int = 64
    """Overlap of a window with the one before in pieces, at most half of a window."""


@dataclass(frozen=True, kw_only=True)
class VectorSettings:
    """What makes a text's vector out of an encoder: nothing is left open."""

    pooling: Pooling = "mean"
    """How the states of a text's tokens become one vector; tokens for none of it."""
    layers: str = "-1"
    """Numbers of layers, or one of the names that fine-tuning on features has; see `Layers.read`."""
    normalize: bool = False
    """Whether vectors have length 1."""
    length: int = 512
    """Most tokens of a text that are read at once, [CLS] and [SEP] included."""
    long: Long = "truncate"
    """How a text that does not fit is read."""
    overlap: int = 64
    """Overlap of a window with the one before in pieces."""

    def problems(self) -> Iterator[str]:
        """Yield what cannot be, in words that say what to do."""
        for name, value, choices in (("pooling", self.pooling, get_args(Pooling)), ("long", self.long, get_args(Long))):
            if value not in choices:
                yield f"--{name} must be one of {', '.join(choices)}, not {value!r}.{nearest(str(value), choices)}"
        if self.overlap < 0:
            yield f"--overlap must be 0 or more pieces, not {self.overlap}."
        if self.pooling == "tokens" and self.long == "window":
            yield "--long window gives a text one vector, the mean of its windows'; --pooling tokens gives it many."
        if self.pooling == "tokens" and self.normalize:
            yield "--normalize is for one vector a text: leave it out with --pooling tokens."


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The layers taken: `numbers`, 0 for the embedding output and -1 for the last, and what becomes of several."""

    numbers: tuple[int, ...]
    joined: Literal["alone", "stack", "mean", "concat"]

    @classmethod
    def read(cls, text: str, top: int) -> Layers:
        """Return the layers that a text names, in an encoder of `top` blocks.

        Numbers: "-1" is one layer, "-1,-2" stacks two, and "-1," stacks one, as a comma makes Python's tuples. Names:
        last, second-to-last and embeddings are one layer, concat-last-four puts four side by side, and sum-last-four
        and sum-all take layers with equal weights of sum 1, the start of fine-tuning on features. Raises UserError for
        anything else.
        """
        if text in NAMED:
            numbers = tuple(chosen_layers(text, top))  # type: ignore[arg-type]
            joined = "alone" if len(numbers) == 1 else "concat" if text.startswith("concat") else "mean"
            return cls(numbers=numbers, joined=joined)  # type: ignore[arg-type]
        try:
            numbers = tuple(int(part) for part in text.removesuffix(",").split(","))
        except ValueError as error:
            names = ", ".join(NAMED)
            raise UserError(
                f"--layers {text}: give numbers such as -1 or -1,-2,-3,-4, or one of {names}.{nearest(text, NAMED)}",
                code="invalid-value",
            ) from error
        wrong = [number for number in numbers if not -top - 1 <= number <= top]
        if wrong:
            raise UserError(
                f"There is no layer {wrong[0]}: the model has 0 (embeddings) to {top}, or from the end -1 to "
                f"{-top - 1}.",
                code="invalid-value",
            )
        return cls(numbers=numbers, joined="stack" if "," in text else "alone")
