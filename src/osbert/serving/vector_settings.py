"""How vectors are made: the settings that a file of vectors keeps, so that a question is embedded as its texts were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from osbert.data.long_texts import Long
from osbert.errors import UserError, nearest
from osbert.models import pooling
from osbert.models.layer_choice import Features, chosen_layers

Pooling = Literal[pooling.Pooling, "pooler", "tokens"]
"""What makes one vector of a sequence, BERT's own tanh layer on its summary, or no pooling."""
LEARNT = ("none", "mix")
"""Of the names of layers in layer_choice.py those that choose nothing, or weights that only fine-tuning finds."""
NAMED = tuple(name for name in get_args(Features) if name not in LEARNT)


@dataclass(frozen=True, kw_only=True)
class VectorSettings:
    """What makes a text's vector out of an encoder."""

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
    """Pieces that a window shares with the one before."""

    def problems(self) -> Iterator[str]:
        """Yield what cannot be, in words that say what to do."""
        if self.overlap < 0:
            yield f"--overlap must be 0 or more pieces, not {self.overlap}."
        if self.pooling == "tokens" and self.long == "window":
            yield "--long window gives a text one vector, the mean of its windows'; --pooling tokens gives it many."
        if self.pooling == "tokens" and self.normalize:
            yield "--normalize is for one vector a text: leave it out with --pooling tokens."
        if self.pooling == "pooler" and self.layers not in ("-1", "last"):
            yield f"The pooler stands on the last layer: leave --layers {self.layers} out."


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The layers taken: `numbers`, 0 for the embedding output and -1 for the last, and what becomes of several."""

    numbers: tuple[int, ...]
    joined: Literal["alone", "stack", "mean", "concat"]

    @classmethod
    def read(cls, text: str, top: int) -> Layers:
        """Return the layers that a text names, in an encoder of `top` blocks.

        Numbers: "-1" is one layer, "-1,-2" stacks two. Names: last, second-to-last and embeddings are one layer,
        concat-last-four puts four side by side, and sum-last-four and sum-all take layers at equal shares of 1, as
        where fine-tuning on features begins. Raises UserError at anything else.
        """
        if text in NAMED:
            numbers = tuple(chosen_layers(text, top))  # type: ignore[arg-type]
            joined = "alone" if len(numbers) == 1 else "concat" if text.startswith("concat") else "mean"
            return cls(numbers=numbers, joined=joined)  # type: ignore[arg-type]
        try:
            numbers = tuple(int(part) for part in text.split(","))
        except ValueError as error:
            names = ", ".join(NAMED)
            raise UserError(
                f"--layers {text}: give numbers such as -1 or -1,-2,-3,-4, or one of {names}.{nearest(text, NAMED)}"
            ) from error
        wrong = [number for number in numbers if not -top - 1 <= number <= top]
        if wrong:
            raise UserError(
                f"There is no layer {wrong[0]}: the model has 0 (embeddings) to {top}, or from the end -1 to "
                f"{-top - 1}."
            )
        return cls(numbers=numbers, joined="alone" if len(numbers) == 1 else "stack")
