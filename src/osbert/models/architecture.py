"""The settings of the Transformer: sizes and choices, and checks of their combinations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal, Self

from osbert.models.sizes import Direction, Sizes

MOST = {"layers": 1000, "recurrent": 100, "length": 1 << 17}
"""Limits of sizes that cost memory before any weights exist: modules for layers, tables of angles for the length."""
HEAD = 64
"""Width of a head in the published sizes."""


@dataclass(frozen=True, kw_only=True)
class Architecture(Sizes):
    """The sizes and choices of an encoder (BERT, section 3). The defaults are BERT BASE."""

    family: ClassVar[str] = "transformer"
    # Sizes.
    layers: int = 12
    """How many blocks stand on each other."""
    distinct: int = 0
    """Blocks with weights of their own, each shared by layers / distinct consecutive layers (ALBERT: 1); 0 for
    layers."""
    width: int = 768
    """Size of the hidden state of a token."""
    heads: int = 12
    """Attention heads in a block; they share the width evenly."""
    key_heads: int = 0
    """Heads of keys and values, each shared by heads / key_heads query heads (GQA); 0 for as many as heads."""
    head_width: int = 0
    """Width of the queries, keys and values of a head; 0 for width / heads (T5's first release: 64)."""
    feedforward: int = 0
    """Width of the feed-forward layer inside a block; 0 for four times the width."""
    vocabulary: int = 0
    """Pieces in the vocabulary; 0 for the tokenizer's."""
    length: int = 512
    """Most tokens in a sequence."""
    segments: int = 2
    """Kinds of segment: 2 for texts A and B; 0 for none, as in DistilBERT, which separates texts by [SEP] only."""
    tasks: int = 0
    """Rows of the task embedding, one for each objective of a curriculum (data.curriculum; ERNIE 2.0); 0 for none.
    Later uses of the model read row 0."""

    # Blocks.
    direction: Direction = "both"
    """Tokens that a token attends to: the whole sequence, as in BERT, or itself and those before it, as in GPT."""
    window: int = 0
    """Positions that a token sees on either side in a local block; 0 if all blocks are global."""
    global_every: int = 1
    """With a window: every n-th block, starting with the first, is global; the others are local."""
    memory: int = 0
    """Tokens before a sequence whose cached states all layers attend to, in pretraining on streams (data.streams;
    Transformer-XL); 0 for none. Otherwise sequences have no past."""
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    """Activation between the two feed-forward layers; gelu_tanh is GELU's tanh approximation."""
    gated: bool = False
    """Whether the activation's output is multiplied by a second layer of the same width (GeGLU, SwiGLU). Neither layer
    then has biases."""
    normalization: Literal["post", "pre"] = "post"
    """post: normalise the residual sums, as in BERT. pre: normalise the input of each half of a block, and the output
    of the last block."""
    first_norm: bool = True
    """With pre-normalisation: whether the first block normalises the input of attention. The embeddings are already
    normalised."""
    epsilon: float = 1e-12
    """Added to the variance in every normalisation."""
    root_norm: bool = False
    """Whether norms only divide by the root mean square, without mean and biases (RMSNorm)."""
    biases: bool = True
    """Whether norms and linear layers have biases; for the pooler and heads see `head_biases`."""
    norm_biases: bool = False
    """Whether norms have biases although `biases` is off."""

    # Positions.
    positions: Literal["learned", "rotary", "disentangled", "distances", "none"] = "learned"
    """Position encoding: a learned vector added to the input, rotation of queries and keys (rotary), attention scores
    between tokens and learned vectors of distances (disentangled, DeBERTa), or between queries and sinusoids of
    distances (distances, Transformer-XL; attention then has two biases of its own and no others); none: only
    distance_scores, if any (T5)."""
    first_position: int = 0
    """Number of unused position embeddings before that of the first token; RoBERTa: 2."""
    rotary_base: float = 10_000.0
    """Base of the rotary angles. A higher base distinguishes positions at larger distances."""
    local_base: float = 10_000.0
    """Base of the rotary angles in local blocks."""
    buckets: int = 256
    """Buckets of distances on either side, for disentangled positions: half of them for one distance each, the others
    for increasing ranges up to `farthest`. 0: one vector for each distance."""
    farthest: int = 512
    """Distance from which on all distances share a vector, for disentangled positions and for distances."""
    distance_projections: bool = False
    """For disentangled positions: whether queries and keys of distances have projections of their own, or share those
    of the tokens, as in DeBERTa's third version."""
    distance_norm: bool = True
    """For disentangled positions: whether the vectors of distances are normalised, unlike in DeBERTa's first
    version."""
    segment_scores: bool = False
    """With positions = distances: whether attention also scores whether query and key share a segment (XLNet). Segments
    then have no embeddings."""
    distance_scores: int = 0
    """Buckets of distances, each with a learned bias of each head's attention scores, shared by all layers (T5; MPNet:
    32); 0 for none."""

    # Embeddings.
    embedding: int = 0
    """Width of the embeddings if they are projected to the width of the states, as in ELECTRA; 0 for no projection."""
    project_first: bool = False
    """Whether embeddings are projected before the norm, without biases (DeBERTa), or after it (ELECTRA)."""
    embedding_norm: bool = True
    """Whether the sum of the embeddings is normalised, as in BERT, unlike GPT."""
    query_vector: bool = False
    """Whether unseen tokens have one learned input vector, as in XLNet's second stream, or the embedding of their
    piece."""

    # What represents a sequence, and what heads read and share.
    summary: Literal["token", "first", "last", "mean", "late"] = "token"
    """The state that represents a sequence: that of its first token (token: the last with direction = left_to_right),
    of its last token, or the mean of all. late: the mean of the pooler's output for each token."""
    pooling: Literal["tanh", "gelu", "gelu_tanh", "relu", "silu", "none", "unit"] = "tanh"
    """Activation of the pooler, the input of classification: tanh in BERT and RoBERTa, gelu in ELECTRA, relu in
    DistilBERT. none: no pooler; classification reads the state itself, as in GPT. unit: no pooler; it reads the state
    scaled to length 1."""
    head_transform: bool = False
    """Whether the pooler ends with a norm, and heads for tokens and spans have such layers, too (ModernBERT)."""
    head_biases: bool = True
    """Whether the pooler and the hidden layers of heads have biases; output layers always do."""
    piece_transform: bool = True
    """Whether heads that predict pieces have a dense layer, an activation, a norm and a bias for each piece, as in
    BERT. GPT multiplies the states with the piece embeddings directly."""
    piece_activation: Literal["", "gelu", "gelu_tanh", "relu", "silu"] = ""
    """The activation of that layer, if another than `activation`: gelu in RoBERTa, whatever its blocks have."""
    piece_biases: bool = False
    """Whether such heads have a bias for each piece even without piece_transform, as in XLNet."""
    tied: bool = True
    """Whether heads that predict pieces share the piece embeddings, as in BERT, or have a table of their own, as in
    EuroBERT."""
    scaled_pieces: bool = False
    """Whether such heads divide the states by sqrt(width), as in T5's first release."""

    # Dropout and initial weights.
    dropout: float = 0.1
    """Dropout rate of each layer's output."""
    attention_dropout: float = 0.1
    """Dropout rate of the attention weights."""
    deviation: float = 0.02
    """Standard deviation of the initial weights, a normal distribution truncated at two deviations."""
    scaled_outputs: bool = False
    """Initialise the last layer of each half of a block with deviation / sqrt(2 layers), as in GPT-2."""
    neighbours: float = 0.0
    """Above 0, half of the heads initially attend to the previous or next token, more sharply with higher values
    (rotary positions)."""

    # Layers that a task adds.
    adapters: int = 0
    """Width of the adapters after both halves of each block (Houlsby et al. 2019); 0 for none."""
    recurrent: int = 0
    """Layers of a bidirectional LSTM above the last block, as in the paper's fine-tuning (Table 5, + BiLSTM)."""

    @property
    def causal(self) -> bool:
        """Return whether no state depends on a later token. Recurrent layers read backwards as well."""
        return self.direction == "left_to_right" and not self.recurrent

    @property
    def summary_is_last(self) -> bool:
        return self.summary == "last" or (self.summary == "token" and super().summary_is_last)

    @property
    def has_pooler(self) -> bool:
        """Whether there is a pooler, a dense layer before classification."""
        return self.pooling not in ("none", "unit")

    @property
    def key_width(self) -> int:
        """The width K of the queries, keys and values of a head."""
        return self.head_width or self.width // self.heads

    @property
    def blocks(self) -> int:
        """The number of blocks with weights of their own."""
        return self.distinct or self.layers

    @property
    def any_length(self) -> bool:
        return self.positions != "learned"

    @property
    def dropouts(self) -> tuple[float, ...]:
        return (self.dropout, self.attention_dropout)

    def resize(self, layers: int, width: int) -> Self:
        """Return these settings with other `layers` and `width`, and dependent settings adjusted.

        Heads have the published width; with `neighbours` there are at least four. Feed-forward layers stay in
        proportion, narrow embeddings stay narrower than the states, and the number of shared blocks divides the layers.
        """
        heads = max(width // HEAD, 4 if self.neighbours else 1)
        return self.replace(
            layers=layers,
            width=width,
            heads=heads,
            head_width=0 if self.head_width == width // heads else self.head_width,
            key_heads=math.gcd(heads, self.key_heads) % heads,
            feedforward=round(self.feedforward * width / self.width),
            distinct=math.gcd(layers, self.distinct) if self.distinct else 0,
            embedding=self.embedding if self.embedding < width else width // 2,
        )

    def narrow(self, factor: float) -> Self:
        """Return these settings at `factor` times the width, with heads and embedding tables of unchanged width.

        With `neighbours` there are at least four heads.
        """
        width, table = round(self.width * factor), self.embedding or self.width
        heads = max(round(self.heads * factor), 4 if self.neighbours else 1)
        return self.replace(
            width=width,
            heads=heads,
            key_heads=math.gcd(heads, self.key_heads) % heads,
            feedforward=round(self.feedforward * factor),
            embedding=0 if table == width else table,
        )

    def activations(self, length: int) -> float:
        # Counted from the saved tensors of a block: inputs of layers, norms and activations.
        within = 9 * self.width + (3 if self.gated else 2) * (self.feedforward or 4 * self.width)
        # Fused attention saves no weights; it cannot be used with dropout on the CPU, or with learned biases.
        saves_weights = (
            self.attention_dropout or self.positions in ("disentangled", "distances") or self.distance_scores
        )
        return within + (3 * self.heads * length if saves_weights else 0)

    def is_local(self, layer: int) -> bool:
        return bool(self.window) and layer % self.global_every != 0

    def problems(self) -> tuple[str, ...]:
        combined = (_ill_combined(self), _of_positions(self), _of_blocks(self), _of_scores(self), _uneven(self))
        return (*_invalid_numbers(self), *chain.from_iterable(combined))


def _invalid_numbers(sizes: Architecture) -> Iterator[str]:
    bounds = {
        "at least 1": (1, ("layers", "heads", "width", "length", "global_every")),
        "at least 1, or 0 for four times the width": (0, ("feedforward",)),
        "at least 1, or 0 for as many as there are layers": (0, ("distinct",)),
        "at least 1, or 0 for none": (
            0,
            (
                *("segments", "embedding", "first_position", "recurrent", "adapters", "window", "buckets", "key_heads"),
                *("head_width", "memory", "tasks"),
            ),
        ),
        "at least 1: the tokenizer's number of pieces": (1, ("vocabulary",)),
    }
    for wanted, (least, names) in bounds.items():
        for name in names:
            if getattr(sizes, name) < least:
                yield f"{name} is {getattr(sizes, name)}, but must be {wanted}"
    for name, most in MOST.items():
        if getattr(sizes, name) > most:
            yield f"{name} is {getattr(sizes, name):,}, but must be at most {most:,}"
    for name in ("dropout", "attention_dropout"):
        if not 0 <= getattr(sizes, name) < 1:
            yield f"{name} is {getattr(sizes, name)}, but must be at least 0 and below 1"
    for name in ("epsilon", "deviation", "rotary_base", "local_base"):
        if not getattr(sizes, name) > 0:
            yield f"{name} is {getattr(sizes, name)}, but must be above 0"
    if sizes.embedding == sizes.width > 0:
        yield f"embedding is {sizes.embedding}, which is the width: leave it at 0"


def _ill_combined(sizes: Architecture) -> Iterator[str]:
    if sizes.distinct > 0 and sizes.layers % sizes.distinct:
        yield f"distinct is {sizes.distinct}, but {sizes.layers} layers cannot share so many blocks evenly"
    if sizes.blocks < sizes.layers and not sizes.first_norm:
        yield f"distinct is {sizes.distinct}, but without first_norm the first block is another than those above"
    if sizes.project_first and not sizes.embedding:
        yield "project_first is True, but embedding is 0: nothing is projected"
    if sizes.embedding and not sizes.piece_transform:
        yield f"piece_transform is off, but embedding is {sizes.embedding}: no state is as wide as the pieces"
    if sizes.piece_biases and sizes.piece_transform:
        yield "piece_biases is True, but piece_transform is, too, which has such biases: leave it at False"
    if sizes.piece_activation and (sizes.piece_activation == sizes.activation or not sizes.piece_transform):
        yield f"piece_activation is {sizes.piece_activation}, which changes nothing here: leave it empty"
    if sizes.tasks and (not sizes.segments or sizes.segment_scores):
        yield f"tasks is {sizes.tasks}, but there are no embeddings of segments, beside which those of tasks stand"
    if sizes.summary == ("last" if sizes.direction == "left_to_right" else "first"):
        yield f"summary is {sizes.summary}, which direction = {sizes.direction} has anyway: leave it at token"


def _of_positions(sizes: Architecture) -> Iterator[str]:
    if sizes.first_position > 0 and sizes.positions != "learned":
        yield f"first_position is {sizes.first_position}, but {sizes.positions} positions are not learned vectors"
    names_by_kind = {
        ("rotary",): ("rotary_base", "local_base"),
        ("disentangled",): ("buckets", "distance_projections", "distance_norm"),
        ("distances",): ("segment_scores",),
        ("disentangled", "distances"): ("farthest",),
    }
    for positions, names in names_by_kind.items():
        for name in names if sizes.positions not in positions else ():
            if getattr(sizes, name) != getattr(Architecture, name):
                right = " or ".join(positions)
                yield f"{name} is {getattr(sizes, name)}, but positions are {sizes.positions}, not {right}"
    if sizes.positions == "distances" and sizes.width % 2:
        yield f"width is {sizes.width}, but half of a distance's numbers are sines: it must be even"
    if sizes.buckets % 2:
        yield f"buckets is {sizes.buckets}, but half of them are for one distance each: it must be even"
    # `distance_rows` divides by log((farthest - 1) / (buckets / 2)), which must be above 0.
    least = 1 if sizes.positions == "distances" else sizes.buckets // 2 + 2
    if not least <= sizes.farthest <= MOST["length"]:
        yield f"farthest is {sizes.farthest:,}, but must be from {least:,} to {MOST['length']:,}"


def _of_scores(sizes: Architecture) -> Iterator[str]:
    if sizes.distance_scores % 4 or not 0 <= sizes.distance_scores <= 256:
        yield f"distance_scores is {sizes.distance_scores}, but must be 0, or a multiple of 4 up to 256"
    without = {"disentangled": ("distance_scores", "key_heads"), "distances": ("distance_scores",)}
    for name in without.get(sizes.positions, ()):
        if getattr(sizes, name):
            yield f"{name} is {getattr(sizes, name)}, but positions = {sizes.positions} excludes it: leave it at 0"
    if sizes.neighbours < 0 or (sizes.neighbours and sizes.positions != "rotary"):
        yield f"neighbours is {sizes.neighbours}, but must be 0, or above 0 with rotary positions"
    if sizes.neighbours and sizes.key_heads:
        yield f"neighbours is {sizes.neighbours}, but heads that share keys cannot face different neighbours"
    if sizes.neighbours and not sizes.biases:
        yield f"neighbours is {sizes.neighbours}, but heads face their neighbours by biases, which are off"
    if sizes.neighbours and (sizes.rotary_base, sizes.local_base) != (Architecture.rotary_base,) * 2:
        yield f"neighbours is {sizes.neighbours}, which is made for a rotary_base of {Architecture.rotary_base:,.0f}"


def _of_blocks(sizes: Architecture) -> Iterator[str]:
    if not sizes.window and (sizes.global_every != 1 or sizes.local_base != Architecture.local_base):
        yield "global_every and local_base are for local blocks, but the window is 0: all blocks are global"
    if sizes.window and sizes.global_every == 1:
        yield f"window is {sizes.window}, but with global_every 1 no block is local"
    if sizes.root_norm and sizes.norm_biases:
        yield "norm_biases is True, but root_norm is, too: such norms have no biases"
    if sizes.norm_biases and sizes.biases:
        yield "norm_biases is True, but biases is, too, which gives norms theirs: leave norm_biases at False"
    if not sizes.first_norm and sizes.normalization != "pre":
        yield "first_norm is False, but only blocks with normalization pre can do without the first norm"


def _uneven(sizes: Architecture) -> Iterator[str]:
    if sizes.recurrent > 0 and sizes.width % 2:
        yield f"recurrent is {sizes.recurrent}, but its two directions cannot share the width {sizes.width} evenly"
    if sizes.heads < 1:
        return
    if sizes.key_heads > 0 and (sizes.heads % sizes.key_heads or sizes.key_heads == sizes.heads):
        yield f"key_heads is {sizes.key_heads}, but must divide {sizes.heads} heads into groups of several, or be 0"
    if sizes.head_width == sizes.width // sizes.heads > 0:
        yield f"head_width is {sizes.head_width}, which is an even share of the width: leave it at 0"
    if not sizes.head_width and sizes.width % sizes.heads:
        yield f"the width {sizes.width} cannot be shared evenly by {sizes.heads} heads"
    elif sizes.positions == "rotary" and sizes.key_width % 2:
        yield f"rotary positions turn pairs of numbers, but a head is {sizes.key_width} wide, which is odd"
