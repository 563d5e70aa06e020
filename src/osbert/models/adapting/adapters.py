"""Adapters (Houlsby et al. 2019): two small modules in each block are trained; the encoder around them is frozen.

Each follows a sublayer, before the residual sum: x + W_up f(W_down x), from the width to a bottleneck and back. W_up
starts at 0, so new adapters do not change the encoder. As in the paper, the norms of the blocks are trained as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor, nn

from osbert.models.fast.linear import Linear

if TYPE_CHECKING:
    from osbert.models.architecture import Architecture
    from osbert.models.contract import Backbone


class Adapter(nn.Module):
    """(N, D) -> (N, D): a bottleneck with a residual connection."""

    def __init__(self, width: int, bottleneck: int) -> None:
        """Make an adapter for states of `width`, which starts as the identity."""
        super().__init__()
        self.down = Linear(width, bottleneck)
        self.activation = nn.GELU()
        self.up = Linear(bottleneck, width)
        self.silence()

    def forward(self, hidden: Tensor) -> Tensor:
        """Return `hidden` (N, D) plus the bottleneck's output."""
        return hidden + self.up(self.activation(self.down(hidden)))

    def silence(self) -> None:
        """Make the adapter the identity: set W_up to 0."""
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)


def adapter(architecture: Architecture) -> nn.Module:
    """Return a new adapter; the identity if the architecture has none."""
    return Adapter(architecture.width, architecture.adapters) if architecture.adapters else nn.Identity()


def trainable_modules(backbone: Backbone) -> Iterator[nn.Module]:
    """Yield the trained modules of an encoder with adapters: adapters and norms, but not the norm of embeddings."""
    below = set(backbone.stack[0].modules())
    for module in backbone.modules():
        if isinstance(module, Adapter | nn.LayerNorm | nn.RMSNorm) and module not in below:
            yield module
