"""Settings of vectors. A file of vectors keeps them, so that a query is embedded in the same way as its texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from osbert.data.long_texts import Long
from osbert.errors import UserError, nearest
from osbert.models import forms
from osbert.models.forms import Features, VectorKind, feature_layers, vector_kind

Pooling = Literal[forms.Pooling, "pooler", "tokens", forms.SparsePooling, forms.MultiPooling]
"""A pooling of models/forms.py, BERT's pooler (tanh layer on [CLS]), or no pooling (tokens)."""
LEARNT = ("none", "mix")
"""Names of `Features` that have no meaning here: no layer, and a mix whose weights only fine-tuning learns."""
NAMED = tuple(name for name in get_args(Features) if name not in LEARNT)

SHORT, LONG = 1e-15, 1e15
"""Lengths between which float32 holds the squares of a vector's numbers."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    """Options for vectors. None means the model's own."""

    role: str | None = None
    """What the texts are for: query, document, or the name of a prompt of the model. The model's prompt for the role is
    put before each text. Default: no role, with the default prompt of a model that has one."""
    pooling: Pooling | None = None
    """cls: the hidden state of [CLS], or of the last [SEP] in a left-to-right model. mean, max: over all tokens, [CLS]
    and [SEP] included. weighted: a mean with weight i for the i-th token (position-weighted). mean_sqrt: the sum over
    the square root of the number of tokens. last: the last token. pooler: BERT's tanh layer on the last layer's cls.
    tokens: no pooling. splade: sparse vectors, a weight for each piece of the vocabulary (splade_sum, splade_log,
    splade_log_sum: its variants). colbert: many vectors a text, one of each token that counts, by a model trained for
    it. Default: the model's own if it was trained for sentence vectors, else mean. With
    another pooling, or other layers, Dense parts of the model are not applied."""
    layers: str = "-1"
    """Which layers: 0 is the embedding layer, 1 the first block, -1 the last; "-1,-2,-3,-4" stacks four. Or last,
    second-to-last, embeddings, concat-last-four and concat-ends (the embeddings and the last layer), both side by side,
    sum-last-four, sum-all (with equal weights)."""
    normalize: bool | None = None
    """Scale vectors to length 1. Default: if the model was trained with it."""
    length: int = 0
    """Most tokens of a sequence; 0 for the length that the model was trained with."""
    long: Long = "truncate"
    """What happens to a text that does not fit. truncate: only its beginning is read; head+tail: a quarter from its
    beginning and the rest from its end; window: all of it, in overlapping windows whose vectors are averaged; error:
    it is an error."""
    overlap: int = 64
    """Pieces that consecutive windows share, at most half of a window."""
    dimensions: int = 0
    """Numbers of a vector: the first ones, scaled again to length 1 if vectors are; 0 for all. Models that were trained
    for it (Matryoshka, Kusupati et al. 2022) lose little."""


@dataclass(frozen=True, kw_only=True)
class VectorSettings:
    """Complete settings for the vectors of an encoder: no value is left to the model."""

    pooling: str = "mean"
    """How the hidden states of a text's tokens become one vector: a Pooling, or several joined by "+", whose vectors
    are concatenated; tokens: no pooling."""
    layers: str = "-1"
    """Numbers or a name of layers; see `Layers.read`."""
    normalize: bool = False
    """Whether vectors are scaled to length 1."""
    length: int = 512
    """Most tokens of a sequence, [CLS] and [SEP] included."""
    long: Long = "truncate"
    """What happens to a text that does not fit; see EmbeddingOptions."""
    overlap: int = 64
    """Pieces that consecutive windows share."""
    role: str | None = None
    """The role of the texts; None for none."""
    prompt: str = ""
    """What is put before each text: the model's prompt for the role, or its default prompt."""
    prompt_pooled: bool = True
    """Whether the tokens of the prompt are pooled with those of the text."""
    lower_case: bool = False
    """Whether texts are read in lower case."""
    parts: str = ""
    """A hash of the parts of the model that follow the pooling, such as Dense; "" if none is applied."""
    dimensions: int = 0
    """How many of the numbers of a vector are kept; 0 for all."""

    @property
    def kind(self) -> VectorKind:
        """The kind of the vectors."""
        return vector_kind(self.pooling)

    def facts(self) -> dict[str, Any]:
        """Return the settings by name, without those that earlier versions lacked and that are at their defaults.

        So an embedding that an earlier version began can be continued.
        """
        usual, later = VectorSettings(), ("role", "prompt", "prompt_pooled", "lower_case", "parts", "dimensions")
        return {
            name: value for name, value in asdict(self).items() if name not in later or value != getattr(usual, name)
        }

    def problems(self) -> Iterator[str]:
        """Yield a message for each invalid setting, and what to do."""
        poolings = self.pooling.split("+") if "+" in self.pooling else [self.pooling]
        checks = (*(("pooling", name, get_args(Pooling)) for name in poolings), ("long", self.long, get_args(Long)))
        for name, value, choices in checks:
            if value not in choices:
                yield f"--{name} must be one of {', '.join(choices)}, not {value!r}.{nearest(str(value), choices)}"
        if self.overlap < 0:
            yield f"--overlap must be 0 or more pieces, not {self.overlap}."
        if self.dimensions < 0:
            yield f"--dimensions must be 1 or more, or 0 for all, not {self.dimensions}."
        if self.kind in ("sparse", "multi"):
            for name in ("dimensions", "layers", *(("normalize",) if self.kind == "sparse" else ())):
                if getattr(self, name) not in (getattr(VectorSettings(), name), "last"):
                    yield f"--{name} is for dense vectors; --pooling {self.pooling} gives {self.kind} ones. Remove it."
        if self.pooling == "tokens" and self.dimensions:
            yield "--dimensions cuts the vector of a text, and --pooling tokens gives none. Remove one of the two."
        if self.pooling == "tokens" and self.long == "window":
            yield (
                "--long window averages the vectors of windows, and --pooling tokens gives no vector of a text. Remove "
                "one of the two."
            )
        if self.pooling == "tokens" and self.normalize:
            yield "--normalize needs one vector for each text, and --pooling tokens gives many. Remove one of the two."


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The chosen layers: `numbers` (0: the embedding output, -1: the last), and how several are joined."""

    numbers: tuple[int, ...]
    joined: Literal["alone", "stack", "mean", "concat"]

    @classmethod
    def read(cls, text: str, top: int) -> Layers:
        """Parse the layers in `text`, for an encoder of `top` blocks.

        Numbers: "-1" is one layer, "-1,-2" stacks two, and "-1," stacks one, as a comma makes Python's tuples. Names:
        last, second-to-last and embeddings are one layer, concat-last-four puts four side by side, concat-ends the
        embeddings and the last, and sum-last-four and sum-all take layers with equal weights of sum 1, the start of
        fine-tuning on features. Raises UserError for anything else.
        """
        if text in NAMED:
            numbers = tuple(feature_layers(text, top))  # type: ignore[arg-type]
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


def normalize_vectors(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return vectors (..., D) scaled to length 1. Zero vectors stay as they are."""
    with np.errstate(over="ignore"):
        lengths = exact_lengths(vectors, np.linalg.norm(vectors, axis=-1, keepdims=True))
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def exact_lengths(vectors: NDArray[np.floating], lengths: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the lengths (..., 1) of vectors (..., D), in float64 if the squares of some of them leave float32."""
    usual = (lengths > SHORT) & (lengths < LONG)
    if usual.all():
        return lengths
    return np.where(usual, lengths, np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True))
