"""Transformer: a batch of flat tokens -> States. Its Architecture is the settings, and building is a method of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.attention import Layout, lay_out
from osbert.models.block import Block
from osbert.models.embeddings import Embeddings


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
    """Kinds of segment: 2 for texts A and B."""
    dropout: float = 0.1
    """Share of each layer's output dropped in training."""
    attention_dropout: float = 0.1
    """Share of the attention weights dropped in training."""
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    """The curve between the two feed-forward layers; gelu_tanh is GELU's tanh approximation."""
    positions: Literal["learned", "rotary"] = "learned"
    """How a token's place is told: a learned vector added to the input, or queries and keys turned by angles."""
    epsilon: float = 1e-12
    """Added to the variance in every normalisation."""
    deviation: float = 0.02
    """Standard deviation of the normal the weights start from, before it is cut at two deviations."""

    neighbours: float = 0.0
    """Above 0, half the heads start by looking at the token before or after, the more sharply the higher (rotary)."""

    def build(self) -> Transformer:
        """Return a Transformer with fresh weights, drawn from torch's global generator.

        Raises ValueError listing every size that cannot be.
        """
        model = self.empty()
        model.to_empty(device="cpu")
        initialise(model, self.deviation)
        if self.neighbours:
            for block in model.blocks:
                block.attention.face_neighbours(self.neighbours)  # type: ignore[operator, union-attr]
        return model

    def empty(self) -> Transformer:
        """Return a Transformer whose weights have no memory yet (torch's "meta" device), for a reader to fill.

        Raises ValueError listing every size that cannot be.
        """
        problems = list(_problems(self))
        if problems:
            raise ValueError("this architecture cannot be built: " + "; ".join(problems))
        with torch.device("meta"):
            return Transformer(replace(self, feedforward=self.feedforward or 4 * self.width))


@dataclass(frozen=True, kw_only=True)
class States:
    """What a backbone returns.

    `hidden` (N, D): the last layer, every token. `first` (B, D): each sequence's first token, BERT's C.
    `pooled` (B, D): tanh(dense(first)), on which next-sentence prediction and classification stand.
    """

    hidden: Tensor
    first: Tensor
    pooled: Tensor


class Transformer(nn.Module):
    """Embeddings, blocks and a pooler. It knows no loss and no objective; `Architecture.build` makes it."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the layers; their weights are torch's own until `initialise` or a reader fills them."""
        super().__init__()
        self.architecture = architecture
        self.embeddings = Embeddings(architecture)
        self.blocks = nn.ModuleList(Block(architecture) for _ in range(architecture.layers))
        self.pooler = nn.Linear(architecture.width, architecture.width)

    def forward(self, batch: Batch) -> States:
        """Return the last layer's states."""
        layout = self.layout(batch)
        hidden = self.embeddings(batch)
        for block in self.blocks:
            hidden = block(hidden, layout)
        first = hidden[batch.starts]  # (B, D)
        return States(hidden=hidden, first=first, pooled=torch.tanh(self.pooler(first)))

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield layers + 1 states (N, D): the embedding output, then each block's."""
        layout = self.layout(batch)
        hidden = self.embeddings(batch)
        yield hidden
        for block in self.blocks:
            hidden = block(hidden, layout)
            yield hidden

    def weights(self, batch: Batch) -> Iterator[list[Tensor]]:
        """Yield each block's attention weights, (H, T, T) a sequence, queries in rows. Call it in evaluation mode."""
        layout = self.layout(batch)
        for block, hidden in zip(self.blocks, self.layers(batch), strict=False):
            yield block.attention.weights(hidden, layout)  # type: ignore[operator, union-attr]

    def layout(self, batch: Batch) -> Layout:
        """Return how the batch's sequences lie in memory, for the blocks."""
        sizes = self.architecture
        return lay_out(batch, rotary=sizes.width // sizes.heads if sizes.positions == "rotary" else 0)


@torch.no_grad()
def initialise(module: nn.Module, deviation: float) -> None:
    """Start all weights of `module` afresh: N(0, deviation) cut at two deviations, biases 0, norms 1."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            _truncated_normal(part.weight, deviation)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        if isinstance(part, nn.Linear | nn.LayerNorm):
            nn.init.zeros_(part.bias)


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
        "at least 1": (1, ("layers", "heads", "width", "length", "segments")),
        "at least 1, or 0 for four times the width": (0, ("feedforward",)),
        "at least 1: the tokenizer's number of pieces": (1, ("vocabulary",)),
    }
    for wanted, (least, names) in bounds.items():
        yield from (
            f"{name} is {getattr(sizes, name)}, but must be {wanted}" for name in names if getattr(sizes, name) < least
        )
    for name in ("dropout", "attention_dropout"):
        if not 0 <= getattr(sizes, name) < 1:
            yield f"{name} is {getattr(sizes, name)}, but must be at least 0 and below 1"
    for name in ("epsilon", "deviation"):
        if not getattr(sizes, name) > 0:
            yield f"{name} is {getattr(sizes, name)}, but must be above 0"
    if sizes.neighbours < 0 or (sizes.neighbours and sizes.positions != "rotary"):
        yield f"neighbours is {sizes.neighbours}, but must be 0, or above 0 with rotary positions"
    if sizes.heads >= 1:
        yield from _uneven(sizes)


def _uneven(sizes: Architecture) -> Iterator[str]:
    if sizes.width % sizes.heads:
        yield f"the width {sizes.width} cannot be shared evenly by {sizes.heads} heads"
    elif sizes.positions == "rotary" and (sizes.width // sizes.heads) % 2:
        yield f"rotary positions turn pairs of numbers, but a head is {sizes.width // sizes.heads} wide, which is odd"
