"""The settings of the Transformer: sizes and choices, and what of them cannot be built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from osbert.models.contract import Direction, Sizes

MOST = {"layers": 1000, "recurrent": 100, "length": 1 << 17}
"""Sizes that cost memory before there are weights: modules are made of layers, tables of angles for the length."""


@dataclass(frozen=True, kw_only=True)
class Architecture(Sizes):
    """The sizes and choices of an encoder (BERT, section 3). The defaults are BERT BASE."""

    family: ClassVar[str] = "transformer"
    layers: int = 12
    """How many blocks stand on each other."""
    distinct: int = 0
    """Blocks with weights of their own; each serves layers / distinct neighbouring layers (ALBERT: 1); 0 for layers."""
    heads: int = 12
    """Attention heads in a block; they share the width evenly."""
    width: int = 768
    """Numbers in the state of a token."""
    feedforward: int = 0
    """Width of the feed-forward layer inside a block; 0 for four times the width."""
    vocabulary: int = 0
    """Pieces in the vocabulary; 0 for the tokenizer's."""
    length: int = 512
    """The most tokens a sequence may have."""
    segments: int = 2
    """Kinds of segment: 2 for texts A and B; 0 for none, as DistilBERT, which tells texts apart by [SEP] alone."""
    dropout: float = 0.1
    """Share of each layer's output dropped in training."""
    attention_dropout: float = 0.1
    """Share of the attention weights dropped in training."""
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    """The curve between the two feed-forward layers; gelu_tanh is GELU's tanh approximation."""
    positions: Literal["learned", "rotary"] = "learned"
    """Position encoding: a learned vector added to the input, or rotation of queries and keys (rotary)."""
    first_position: int = 0
    """Learned vectors before that of a sequence's first token, which no token has; RoBERTa: 2."""
    embedding: int = 0
    """Width of the embeddings where they are projected to the width of the states, as ELECTRA; 0 for none of it."""
    embedding_norm: bool = True
    """Whether the sum of the embeddings is normalised, as BERT; GPT's is not."""
    pooling: Literal["tanh", "gelu", "relu"] = "tanh"
    """The curve of the pooler, on which classification stands: BERT's and RoBERTa's; ELECTRA's; DistilBERT's."""
    epsilon: float = 1e-12
    """Added to the variance in every normalisation."""
    deviation: float = 0.02
    """Standard deviation of the normal the weights start from, before it is cut at two deviations."""
    scaled_residuals: bool = False
    """Start the weights of the last layer in each half of a block at deviation / sqrt(2 layers), as GPT-2."""
    normalization: Literal["post", "pre"] = "post"
    """Where each half of a block is normalised: its sum, as BERT; or its input, and once more after the last block."""
    biases: bool = True
    """Whether norms and linear layers add biases; the pooler and the heads always do."""
    neighbours: float = 0.0
    """Above 0, half the heads start by looking at the token before or after, the more sharply the higher (rotary)."""
    direction: Direction = "both"
    """What a token sees: the whole sequence, as BERT; or only itself and what is before it, as GPT."""
    summary: Literal["auto", "first", "last"] = "auto"
    """The token whose state stands for its sequence; auto: the first, or the last with direction = left_to_right."""
    transform: bool = True
    """Whether language-model heads have a dense layer, a curve, a norm and biases of pieces, as BERT's; GPT's none."""
    adapters: int = 0
    """Width of the adapters behind both halves of each block (Houlsby et al. 2019); 0 for none."""
    recurrent: int = 0
    """Layers of a bidirectional LSTM above the last block, as the paper adds in fine-tuning (Table 5, + BiLSTM)."""

    @property
    def causal(self) -> bool:
        """Return whether no state depends on a later token; recurrent layers read backwards too."""
        return self.direction == "left_to_right" and not self.recurrent

    @property
    def summary_is_last(self) -> bool:
        """Return whether the last token of a sequence stands for it."""
        return super().summary_is_last if self.summary == "auto" else self.summary == "last"

    @property
    def blocks(self) -> int:
        """Return how many blocks have weights of their own."""
        return self.distinct or self.layers

    @property
    def any_length(self) -> bool:
        """Return whether no weights belong to positions."""
        return self.positions == "rotary"

    @property
    def dropouts(self) -> tuple[float, ...]:
        """Return the dropout rates of layers and of attention weights."""
        return (self.dropout, self.attention_dropout)

    def problems(self) -> tuple[str, ...]:
        """Return every setting that no Transformer can be built with."""
        return tuple(_problems(self))


def _problems(sizes: Architecture) -> Iterator[str]:
    bounds = {
        "at least 1": (1, ("layers", "heads", "width", "length")),
        "at least 1, or 0 for four times the width": (0, ("feedforward",)),
        "at least 1, or 0 for as many as there are layers": (0, ("distinct",)),
        "at least 1, or 0 for none": (0, ("segments", "embedding", "first_position", "recurrent", "adapters")),
        "at least 1: the tokenizer's number of pieces": (1, ("vocabulary",)),
    }
    for wanted, (least, names) in bounds.items():
        yield from (
            f"{name} is {getattr(sizes, name)}, but must be {wanted}" for name in names if getattr(sizes, name) < least
        )
    yield from (
        f"{name} is {getattr(sizes, name):,}, but must be at most {most:,}"
        for name, most in MOST.items()
        if getattr(sizes, name) > most
    )
    for name in ("dropout", "attention_dropout"):
        if not 0 <= getattr(sizes, name) < 1:
            yield f"{name} is {getattr(sizes, name)}, but must be at least 0 and below 1"
    for name in ("epsilon", "deviation"):
        if not getattr(sizes, name) > 0:
            yield f"{name} is {getattr(sizes, name)}, but must be above 0"
    if sizes.embedding == sizes.width > 0:
        yield f"embedding is {sizes.embedding}, which is the width: leave it at 0"
    yield from _misplaced(sizes)
    if sizes.recurrent > 0 and sizes.width % 2:
        yield f"recurrent is {sizes.recurrent}, but its two directions cannot share the width {sizes.width} evenly"
    if sizes.heads >= 1:
        yield from _uneven(sizes)


def _misplaced(sizes: Architecture) -> Iterator[str]:
    if sizes.distinct > 0 and sizes.layers % sizes.distinct:
        yield f"distinct is {sizes.distinct}, but {sizes.layers} layers cannot share so many blocks evenly"
    if sizes.embedding and not sizes.transform:
        yield f"transform is off, so that embedding must be 0: states are compared with pieces {sizes.embedding} wide"
    if sizes.summary == ("last" if sizes.direction == "left_to_right" else "first"):
        yield f"summary is {sizes.summary}, which direction = {sizes.direction} has anyway: leave it at auto"
    if sizes.first_position > 0 and sizes.positions == "rotary":
        yield f"first_position is {sizes.first_position}, but rotary positions are not learned vectors"
    if sizes.neighbours < 0 or (sizes.neighbours and sizes.positions != "rotary"):
        yield f"neighbours is {sizes.neighbours}, but must be 0, or above 0 with rotary positions"
    if sizes.neighbours and not sizes.biases:
        yield f"neighbours is {sizes.neighbours}, but heads face their neighbours by biases, which are off"


def _uneven(sizes: Architecture) -> Iterator[str]:
    if sizes.width % sizes.heads:
        yield f"the width {sizes.width} cannot be shared evenly by {sizes.heads} heads"
    elif sizes.positions == "rotary" and (sizes.width // sizes.heads) % 2:
        yield f"rotary positions turn pairs of numbers, but a head is {sizes.width // sizes.heads} wide, which is odd"
