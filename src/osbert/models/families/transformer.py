"""Transformer: a batch of flat tokens -> States. Its Architecture is the settings, and building is a method of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.adapting.adapters import Adapter
from osbert.models.adapting.recurrent import Recurrent
from osbert.models.fast.linear import Linear
from osbert.models.transformer.block import ACTIVATIONS, Block, norm
from osbert.models.transformer.embeddings import Embeddings
from osbert.models.transformer.layout import Layout, lay_out

MOST = {"layers": 1000, "recurrent": 100, "length": 1 << 17}
"""Sizes that cost memory before there are weights: modules are made of layers, tables of angles for the length."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The sizes and choices of an encoder (BERT, section 3). The defaults are BERT BASE."""

    layers: int = 12
    """How many blocks stand on each other."""
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
    """How a token's place is told: a learned vector added to the input, or queries and keys turned by angles."""
    first_position: int = 0
    """Learned vectors before that of a sequence's first token, which no token has; RoBERTa: 2."""
    embedding: int = 0
    """Width of the embeddings where they are projected to the width of the states, as ELECTRA; 0 for none of it."""
    pooling: Literal["tanh", "gelu", "relu"] = "tanh"
    """The curve of the pooler, on which classification stands: BERT's and RoBERTa's; ELECTRA's; DistilBERT's."""
    epsilon: float = 1e-12
    """Added to the variance in every normalisation."""
    deviation: float = 0.02
    """Standard deviation of the normal the weights start from, before it is cut at two deviations."""
    normalization: Literal["post", "pre"] = "post"
    """Where each half of a block is normalised: its sum, as BERT; or its input, and once more after the last block."""
    biases: bool = True
    """Whether norms and linear layers add biases; the pooler and the heads always do."""
    neighbours: float = 0.0
    """Above 0, half the heads start by looking at the token before or after, the more sharply the higher (rotary)."""
    direction: Literal["both", "left_to_right"] = "both"
    """What a token sees: the whole sequence, as BERT; or only itself and what is before it, as GPT."""
    adapters: int = 0
    """Width of the adapters behind both halves of each block (Houlsby et al. 2019); 0 for none."""
    recurrent: int = 0
    """Layers of a bidirectional LSTM above the last block, as the paper adds in fine-tuning (Table 5, + BiLSTM)."""

    def problems(self) -> tuple[str, ...]:
        """Return what keeps the architecture from being built: every size that cannot be."""
        return tuple(_problems(self))

    def build(self) -> Transformer:
        """Return a Transformer with fresh weights, drawn from torch's global generator.

        Raises ValueError listing every size that cannot be.
        """
        model = self.empty()
        model.to_empty(device="cpu")
        initialise(model, self.deviation)
        for part in model.modules():
            if isinstance(part, Adapter):
                part.silence()
        if self.neighbours:
            for block in model.blocks:
                block.attention.face_neighbours(self.neighbours)  # type: ignore[operator, union-attr]
        return model

    def empty(self) -> Transformer:
        """Return a Transformer whose weights have no memory yet (torch's "meta" device), for a reader to fill.

        Raises ValueError listing every size that cannot be.
        """
        if problems := self.problems():
            raise ValueError("this architecture cannot be built: " + "; ".join(problems))
        with torch.device("meta"):
            return Transformer(replace(self, feedforward=self.feedforward or 4 * self.width))


@dataclass(frozen=True, kw_only=True)
class States:
    """What a backbone returns.

    `hidden` (N, D): the last layer, every token. `summary` (B, D): the state of the one token that stands for its
    sequence, the first as BERT's C, or the last where each token sees only what is before it. `pooled` (B, D):
    tanh(dense(summary)), or another curve, on which next-sentence prediction and classification stand.
    """

    hidden: Tensor
    summary: Tensor
    pooled: Tensor


class Transformer(nn.Module):
    """Embeddings, blocks and a pooler. It knows no loss and no objective; `Architecture.build` makes it."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the layers; their weights are torch's own until `initialise` or a reader fills them."""
        super().__init__()
        self.architecture = architecture
        self.embeddings = Embeddings(architecture)
        self.blocks = nn.ModuleList(Block(architecture) for _ in range(architecture.layers))
        self.norm = norm(architecture) if architecture.normalization == "pre" else nn.Identity()
        self.recurrent = Recurrent(architecture) if architecture.recurrent else None
        self.pooler = Linear(architecture.width, architecture.width)
        self.pooling = ACTIVATIONS[architecture.pooling]

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the last layer's states; with `read` (R,), as `readable` gives, those of the other tokens are NaN."""
        layout = self.layout(batch)
        hidden = self.embeddings(batch)
        *others, last = self.blocks
        for block in others:
            hidden = block(hidden, layout)
        hidden = self._top(last(hidden, layout if read is None else layout.reading(read, batch.reads)), batch)
        if read is not None:
            everywhere = hidden.new_full((len(batch.ids), hidden.shape[1]), torch.nan)
            hidden = everywhere.index_copy_(0, read, hidden)  # (N, D)
        summary = hidden[self.summaries(batch)]  # (B, D)
        return States(hidden=hidden, summary=summary, pooled=self.pooling(self.pooler(summary)))

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield layers + 1 states (N, D): the embedding output, then each block's."""
        layout = self.layout(batch)
        hidden = self.embeddings(batch)
        yield hidden
        *others, last = self.blocks
        for block in others:
            hidden = block(hidden, layout)
            yield hidden
        yield self._top(last(hidden, layout), batch)

    def weights(self, batch: Batch) -> Iterator[list[Tensor]]:
        """Yield each block's attention weights, (H, T, T) a sequence, queries in rows. Call it in evaluation mode."""
        layout = self.layout(batch)
        for block, hidden in zip(self.blocks, self.layers(batch), strict=False):
            yield block.weights(hidden, layout)  # type: ignore[operator]

    def layout(self, batch: Batch) -> Layout:
        """Return how the batch's sequences lie in memory, for the blocks."""
        sizes = self.architecture
        if batch.order is None and sizes.direction == "left_to_right":
            batch = replace(batch, order=batch.positions)
        return lay_out(batch, rotary=sizes.width // sizes.heads if sizes.positions == "rotary" else 0)

    def readable(self, batch: Batch) -> Tensor | None:
        """Return the tokens (R,) that suffice when only labelled tokens and summaries are read, or None for all.

        Most of the last block's work can then be left out for the other tokens.
        """
        alone = self.architecture.direction == "both" and batch.order is None and self.recurrent is None
        return batch.read if alone and 2 * len(batch.read) < batch.tokens else None

    def summaries(self, batch: Batch) -> Tensor:
        """Return the place in the run (B,) of each sequence's summary: its first token, or its last (see `States`)."""
        if self.architecture.direction == "both":
            return batch.starts
        return functional.pad(batch.starts[1:], (0, 1), value=batch.tokens) - 1

    def _top(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the last layer's states from what the last block gives, both (N, D)."""
        hidden = self.norm(hidden)
        return hidden if self.recurrent is None else self.recurrent(hidden, batch)


@torch.no_grad()
def initialise(module: nn.Module, deviation: float) -> None:
    """Start all weights of `module` afresh: N(0, deviation) cut at two deviations, biases 0, norms 1.

    Recurrent layers start as torch's do, evenly between plus and minus one over the root of their width.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            _truncated_normal(part.weight, deviation)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        elif isinstance(part, nn.LSTM):
            part.reset_parameters()
        if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
            nn.init.zeros_(part.bias)


@torch.no_grad()
def initialise_scores(layer: nn.Linear, deviation: float) -> None:
    """Start the layer that makes a head's scores afresh: N(0, deviation), and biases 0.

    As transformers does. google-research/bert cuts this normal, too, at two deviations, which leaves 0.88 of them; in
    the few steps of fine-tuning taggers were seen to learn the later for it (docs/results.md).
    """
    nn.init.normal_(layer.weight, 0, deviation)
    nn.init.zeros_(layer.bias)


def _truncated_normal(weight: Tensor, deviation: float) -> None:
    """Draw from the normal and draw again what lies outside; torch's own trunc_normal_ takes several times longer."""
    weight.normal_(0, deviation)
    outside = torch.nonzero(weight.view(-1).abs() > 2 * deviation).view(-1)
    while len(outside):
        drawn = torch.empty(len(outside), dtype=weight.dtype, device=weight.device).normal_(0, deviation)
        weight.view(-1)[outside] = drawn
        outside = outside[drawn.abs() > 2 * deviation]


def _problems(sizes: Architecture) -> Iterator[str]:
    bounds = {
        "at least 1": (1, ("layers", "heads", "width", "length")),
        "at least 1, or 0 for four times the width": (0, ("feedforward",)),
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
