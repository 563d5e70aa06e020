"""DecoderBlock: a layer of a decoder, which attends to its own text and to the source."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from osbert.models.architecture import Architecture
from osbert.models.transformer.attention import Attention
from osbert.models.transformer.block import Block, norm
from osbert.models.transformer.kernels import within_graph
from osbert.models.transformer.layout import Layout


class DecoderBlock(Block):
    """A layer of a decoder: self-attention, cross-attention to the source, feed-forward layers."""

    cross_norm: nn.Module

    def __init__(self, architecture: Architecture, layer: int = 0) -> None:
        """Make a layer, counted from 0."""
        super().__init__(architecture, layer)
        self.cross = Attention(architecture, across=True)
        self.cross_norm = norm(architecture)

    def decode(self, hidden: Tensor, layout: Layout, source: Tensor, across: Layout) -> Tensor:
        """Return the layer's output (N, D) for `hidden` (N, D); `source`: the encoder's states, in layout `across`."""
        hidden = self.add_attention(hidden, self.attention(self.attention_input(hidden), layout))
        return self.add_feedforward(
            self.add_source(hidden, self.cross.across(self.cross_input(hidden), source, across))
        )

    def compile(self, **options: Any) -> None:
        """Compile the layer as `Block` does, without the kernel of cross-attention."""
        self.cross.kernel = within_graph(self.cross.kernel)
        super().compile(**options)
