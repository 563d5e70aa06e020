"""Block: attention and feed-forward layers with residual connections, normalised after (BERT) or before them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from osbert.models.architecture import Architecture
from osbert.models.contract import HeadVectors, Sizes
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear
from osbert.models.transformer.added_layers import Adapter
from osbert.models.transformer.attention import Attention
from osbert.models.transformer.kernels import within_graph
from osbert.models.transformer.layout import Layout

StateFunction = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, StateFunction] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


class ResidualOrder:
    """The order in which a layer applies its parts: residual sums, with the norm after (BERT) or before them.

    States may have any leading axes: (N, D) in training, (M, D) in generation (`StepBlock`), (B, T, D) in ONNX graphs.
    Subclasses have the parts. `before`: whether norms are applied before attention and the feed-forward layers.
    """

    before: bool
    gated: bool
    attention_norm: StateFunction
    feedforward_norm: StateFunction
    cross_norm: StateFunction
    attention_adapter: StateFunction
    feedforward_adapter: StateFunction
    dropout: StateFunction
    up: StateFunction
    down: StateFunction
    activation: StateFunction

    def attention_input(self, hidden: Tensor) -> Tensor:
        """Return the input of attention for the layer's input, both (..., D)."""
        return self.attention_norm(hidden) if self.before else hidden

    def finish(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """Return the layer's output from its input `hidden` and attention's output `mixed`, all (..., D)."""
        return self.add_feedforward(self.add_attention(hidden, mixed))

    def add_attention(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """Return the residual sum (..., D) with attention's output."""
        hidden = hidden + self.attention_adapter(self.dropout(mixed))
        return hidden if self.before else self.attention_norm(hidden)

    def cross_input(self, hidden: Tensor) -> Tensor:
        """Return the input (..., D) of cross-attention's queries."""
        return self.cross_norm(hidden) if self.before else hidden

    def add_source(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """Return the residual sum (..., D) with cross-attention's output."""
        hidden = hidden + self.dropout(mixed)
        return hidden if self.before else self.cross_norm(hidden)

    def add_feedforward(self, hidden: Tensor) -> Tensor:
        """Return the residual sum (..., D) with the output of the feed-forward layers."""
        inner = self.up(self.feedforward_norm(hidden) if self.before else hidden)
        if self.gated:
            # GLU: only the first half of the 2 F numbers passes the activation, and the second is the gate.
            inner, gate = inner.chunk(2, dim=-1)
            output = self.down(self.activation(inner) * gate)
        else:
            output = self.down(self.activation(inner))
        hidden = hidden + self.feedforward_adapter(self.dropout(output))
        return hidden if self.before else self.feedforward_norm(hidden)


class Block(ResidualOrder, nn.Module):
    """(N, D) -> (N, D): one layer of the encoder; (R, D) if only R of the tokens have queries."""

    attention_norm: nn.Module
    feedforward_norm: nn.Module
    attention_adapter: nn.Module
    feedforward_adapter: nn.Module
    dropout: Dropout
    up: Linear
    down: Linear

    def __init__(self, architecture: Architecture, layer: int = 0) -> None:
        """Make a layer, counted from 0."""
        super().__init__()
        width, feedforward, biases = architecture.width, architecture.feedforward, architecture.biases
        self.before = architecture.normalization == "pre"
        self.attention = Attention(architecture)
        self.attention_norm = norm(architecture)
        if layer == 0 and not architecture.first_norm:
            # The input of the first layer is normalised already, by the embeddings (ModernBERT).
            self.attention_norm = nn.Identity()
        self.gated = architecture.gated
        # A gated layer stacks values and gate in one matrix, for one product (GLU variants, Shazeer 2020).
        self.up = Linear(width, (1 + self.gated) * feedforward, bias=biases and not self.gated)
        self.parts = {"up.weight": 2} if self.gated else {}
        self.activation = ACTIVATIONS[architecture.activation]
        self.down = Linear(feedforward, width, bias=biases)
        self.feedforward_norm = norm(architecture)
        adapters = architecture.adapters
        self.attention_adapter = Adapter(width, adapters) if adapters else nn.Identity()
        self.feedforward_adapter = Adapter(width, adapters) if adapters else nn.Identity()
        self.dropout = Dropout(architecture.dropout)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Return the layer's output for `hidden` (N, D): (N, D), or (R, D) if the layout has R queries."""
        return self.finish(layout.read_of(hidden), self.attention(self.attention_input(hidden), layout))

    def compile(self, **options: Any) -> None:
        """Compile the layer by torch.compile with `options`, without what depends on Python integers."""
        attention = self.attention
        attention.kernel = within_graph(attention.kernel)
        attention.distance_biases = torch.compiler.disable(attention.distance_biases)
        attention.in_blocks = torch.compiler.disable(attention.in_blocks)  # type: ignore[method-assign]
        if attention.relative is not None:
            attention.relative.forward = torch.compiler.disable(attention.relative.forward)  # type: ignore[method-assign]
        super().compile(**options)

    def weights(self, hidden: Tensor, layout: Layout) -> list[Tensor]:
        """Return each sequence's attention weights (H, T, T) for the layer's input `hidden` (N, D), without dropout."""
        return self.attention.weights(self.attention_input(hidden), layout)

    def head_vectors(self, hidden: Tensor, layout: Layout) -> HeadVectors:
        """Return the queries, keys, values and output matrices of the heads for the layer's input `hidden` (N, D)."""
        return self.attention.head_vectors(self.attention_input(hidden), layout)


def norm(architecture: Architecture, width: int = 0) -> nn.Module:
    """Return a new normalisation layer for states (N, D); for vectors of another size if `width` is given."""
    return norm_of(architecture, width or architecture.width, biases=architecture.biases or architecture.norm_biases)


def norm_of(sizes: Sizes, width: int, *, biases: bool) -> nn.Module:
    """Return a new normalisation layer for vectors of size `width`: RMSNorm or LayerNorm, by the settings `sizes`."""
    if sizes.root_norm:  # RMSNorm (Zhang and Sennrich 2019)
        return nn.RMSNorm(width, eps=sizes.epsilon)
    return nn.LayerNorm(width, eps=sizes.epsilon, bias=biases)
