"""Block: attention and feed-forward, each added to its input and normalised after (post-norm, as BERT)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

from osbert.models.attention import Attention, Layout
from osbert.models.dropout import Dropout

if TYPE_CHECKING:
    from osbert.models.transformer import Architecture

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class Block(nn.Module):
    """(N, D) -> (N, D): one layer of the encoder."""

    def __init__(self, architecture: Architecture) -> None:
        """Make the layer an architecture asks for."""
        super().__init__()
        width, feedforward, epsilon = architecture.width, architecture.feedforward, architecture.epsilon
        self.attention = Attention(architecture)
        self.attention_norm = nn.LayerNorm(width, eps=epsilon)
        self.up = nn.Linear(width, feedforward)
        self.activation = ACTIVATIONS[architecture.activation]
        self.down = nn.Linear(feedforward, width)
        self.feedforward_norm = nn.LayerNorm(width, eps=epsilon)
        self.dropout = Dropout(architecture.dropout)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Return the layer's output for `hidden` (N, D)."""
        hidden = self.attention_norm(hidden + self.dropout(self.attention(hidden, layout)))
        return self.feedforward_norm(hidden + self.dropout(self.down(self.activation(self.up(hidden)))))
